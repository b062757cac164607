"""Procedural tasks: questions that are made, not read. A new task is a new row of TASKS; `reasoning_gym/NAME` is a task
of that package.

A task makes `count` different problems of a split from a seed, and distractors for its own problems by name. The
distractor of a problem depends on the name, the seed and the problem's id alone, not on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.chain_statements import HintKind, make_hint
from megatron_seirenes.problems.chains import Split, chain_of, make_chain_problems
from megatron_seirenes.problems.reasoning_gym_tasks import PREFIX, make_reasoning_gym_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.seeds import stable_seed

MakeProblems = Callable[[Mapping[str, Any], Split, int, int], list[Problem]]
MakeHint = Callable[[Random, Problem], str]


@dataclass(frozen=True, slots=True)
class Task:
    """`make_problems(options, split, count, seed)`; `hints` are makers of distractors by name."""

    name: str
    make_problems: MakeProblems
    hints: Mapping[str, MakeHint]


def _chain_hint(kind: HintKind, true: bool, rng: Random, problem: Problem) -> str:
    return make_hint(rng, chain_of(problem), true, kind).text


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "chain_arithmetic",
            make_chain_problems,
            {
                "wrong_claims": partial(_chain_hint, "claim", False),
                "wrong_steps": partial(_chain_hint, "steps", False),
                "wrong_restatements": partial(_chain_hint, "restatement", False),
                "true_claims": partial(_chain_hint, "claim", True),
                "true_steps": partial(_chain_hint, "steps", True),
                "true_restatements": partial(_chain_hint, "restatement", True),
            },
        ),
    )
}


def make_task_problems(name: str, options: Mapping[str, Any], split: Split, count: int, seed: int) -> list[Problem]:
    """`count` different problems of a task's split. Raises DataError for an unknown task or options it cannot meet."""
    if name.startswith(PREFIX):
        return make_reasoning_gym_problems(name, options, split, count, seed)
    if name not in TASKS:
        raise DataError(f"unknown task {name!r}; known: {', '.join(TASKS)}, and {PREFIX}NAME")
    return TASKS[name].make_problems(options, split, count, seed)


def make_task_hints(name: str, problems: Sequence[Problem], seed: int) -> list[str]:
    """One distractor a problem, in order.

    `name` is a hint's name of any task, such as `wrong_claims`. Raises DataError for an unknown name and for problems
    of another task.
    """
    makers = {hint: maker for task in TASKS.values() for hint, maker in task.hints.items()}
    if name not in makers:
        raise DataError(f"unknown task distractors {name!r}; known: {', '.join(makers)}")
    return [makers[name](Random(stable_seed("task_hint", name, seed, problem.id)), problem) for problem in problems]


wrong_claim_hints = partial(make_task_hints, "wrong_claims")
