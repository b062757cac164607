"""Procedural tasks of the package reasoning-gym, by name: `reasoning_gym/chain_sum`.

Only tasks whose questions have one right answer that the verifier can judge are taken (`ANSWERABLE`); many others of
the package accept any answer that passes a check, or ask for grids. The package's own scoring is not trusted with
responses: it gives credit to texts that contain the answer and can raise. It is asked one thing only, whether it gives
its own answer exactly 1.0; a question for which it does not is left out.

A question belongs to `held_out` (one in four) or to `train` by its text alone, so the two share none under any seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron_seirenes.errors import DataError, MissingComponentError
from megatron_seirenes.problems.chains import Split
from megatron_seirenes.problems.gold import without_dollars
from megatron_seirenes.records import Problem
from megatron_seirenes.seeds import stable_seed

PREFIX = "reasoning_gym/"
PACKAGE = "reasoning-gym==0.1.25"
HELD_OUT_ONE_IN = 4
DRAWS_FOR_ONE = 50
"""How many questions are drawn for each that is wanted, before a task counts as too small."""

ANSWERABLE = tuple(
    "aiw basic_arithmetic binary_alternation chain_sum coin_flip count_bits count_primes decimal_arithmetic "
    "decimal_chain_sum dice fraction_simplification gcd gsm_symbolic largest_island lcm leg_counting "
    "letter_counting maze number_sequence products rectangle_count rotten_oranges self_reference "
    "simple_equations simple_geometry".split()
)


def make_reasoning_gym_problems(
    name: str, options: Mapping[str, Any], split: Split, count: int, seed: int
) -> list[Problem]:
    """`count` different questions of the task `reasoning_gym/NAME`; `options` are the package's own.

    Raises DataError for an unknown task or options it does not take, MissingComponentError without the package.
    """
    task = name.removeprefix(PREFIX)
    if task not in ANSWERABLE:
        raise DataError(f"task {name!r} is unknown or has no single answer to judge; known: {', '.join(ANSWERABLE)}")
    dataset = _dataset(task, options, count * DRAWS_FOR_ONE, stable_seed("reasoning_gym", task, seed) % 2**31)
    problems: dict[str, Problem] = {}
    for index in range(count * DRAWS_FOR_ONE):
        entry = dataset[index]
        question = str(entry["question"]).strip()
        if question in problems or split_of(question) != split or not _answers_itself(dataset, entry):
            continue
        key = f"{stable_seed('question', question):016x}"
        answer = without_dollars(str(entry["answer"]))
        problems[question] = Problem(f"{name}/{key}", question, answer, name)
        if len(problems) == count:
            return list(problems.values())
    raise DataError(f"task {name}: {count} different questions of split {split} are wanted, {len(problems)} were found")


def split_of(question: str) -> Split:
    """The side on which a question falls, by its text alone."""
    return "held_out" if stable_seed("reasoning_gym_split", question) % HELD_OUT_ONE_IN == 0 else "train"


def _dataset(task: str, options: Mapping[str, Any], size: int, seed: int) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise MissingComponentError(
            f"task {PREFIX}{task}: the package reasoning-gym is needed ({error}): pip install {PACKAGE}"
        ) from None
    try:
        return reasoning_gym.create_dataset(task, seed=seed, size=size, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise DataError(f"task {PREFIX}{task}: options {dict(options)} are not taken: {error}") from None


def _answers_itself(dataset: Any, entry: Mapping[str, Any]) -> bool:
    """Whether the package gives its own answer full credit."""
    try:
        return float(dataset.score_answer(entry["answer"], entry)) == 1.0
    except Exception:  # the package's scorers raise whatever their parsers do
        return False
