"""The small world: chains of arithmetic modulo 11, worked left to right.

A chain starts at a value and applies 3 to 6 labelled steps, each an operation and an operand:

    9 a * 5 b - 3 c * 4     means  a = 9 * 5 = 1,  b = a - 3 = 9,  c = b * 4 = 3;  the answer is 3

The *template* of a chain is its sequence of operations. A stable hash of the template, and nothing else, puts it into
`train` or `held_out` (one in four), so a held-out chain has an order of operations that no training question and no
warm-up record ever showed. Every draw takes its randomness as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from megatron_seirenes.errors import DataError
from megatron_seirenes.records import Problem
from megatron_seirenes.seeds import stable_seed

MODULUS = 11
OPERATIONS = ("+", "-", "*")
OPERANDS = (2, 3, 4, 5)
LABELS = ("a", "b", "c", "d", "e", "f")
SHORTEST, LONGEST = 3, 6
HELD_OUT_ONE_IN = 4
OPTIONS = ("min_steps", "max_steps", "notes", "note_truth")

Split = Literal["train", "held_out"]


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One step: `value -> value operation operand (mod 11)`."""

    operation: str
    operand: int

    def apply(self, value: int) -> int:
        """The value after this step, in [0, 11)."""
        if self.operation == "+":
            return (value + self.operand) % MODULUS
        if self.operation == "-":
            return (value - self.operand) % MODULUS
        return (value * self.operand) % MODULUS


@dataclass(frozen=True, slots=True)
class Chain:
    """A question of the small world."""

    start: int
    steps: tuple[ChainStep, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """The value after each step; the last is the answer."""
        value, values = self.start, []
        for step in self.steps:
            value = step.apply(value)
            values.append(value)
        return tuple(values)

    @property
    def answer(self) -> int:
        return self.values[-1]

    @property
    def template(self) -> str:
        """The sequence of operations, such as `*-*`."""
        return "".join(step.operation for step in self.steps)

    @property
    def text(self) -> str:
        """The question in words of the world's vocabulary, separated by single spaces."""
        labelled = zip(LABELS, self.steps, strict=False)
        return " ".join([str(self.start), *(f"{label} {step.operation} {step.operand}" for label, step in labelled)])


def split_of(template: str) -> Split:
    """The side on which a template falls, by its hash alone; those too short to be asked are all for training."""
    if len(template) < SHORTEST:
        return "train"
    return "held_out" if stable_seed("chain_template", template) % HELD_OUT_ONE_IN == 0 else "train"


def draw_chain(rng: Random, split: Split, shortest: int = SHORTEST, longest: int = LONGEST) -> Chain:
    """A chain of `split`: the length uniform in [shortest, longest], start, operations and operands uniform."""
    length = rng.randint(shortest, longest)
    while True:
        operations = [rng.choice(OPERATIONS) for _ in range(length)]
        if split_of("".join(operations)) == split:
            break
    steps = tuple(ChainStep(operation, rng.choice(OPERANDS)) for operation in operations)
    return Chain(rng.randrange(MODULUS), steps)


def chain_problem(chain: Chain) -> Problem:
    """The chain as a problem. Its id spells the question, so equal chains have equal ids in every pool and run."""
    spelled = "".join(f"{step.operation}{step.operand}" for step in chain.steps)
    return Problem(
        id=f"chain_arithmetic/{chain.start}{spelled}",
        question=chain.text,
        answer=str(chain.answer),
        source="chain_arithmetic",
        meta={
            "start": chain.start,
            "steps": [[step.operation, step.operand] for step in chain.steps],
            "solution": " ".join(f"{label} {value}" for label, value in zip(LABELS, chain.values, strict=False)),
        },
    )


def chain_of(problem: Problem) -> Chain:
    """The chain that a problem was made from. Raises DataError for a problem of another kind."""
    try:
        steps = tuple(ChainStep(str(operation), int(operand)) for operation, operand in problem.meta["steps"])
        return Chain(int(problem.meta["start"]), steps)
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"problem {problem.id}: not a chain_arithmetic problem (its meta holds {sorted(problem.meta)}; "
            "`start` and `steps` expected)"
        ) from None


def make_chain_problems(options: Mapping[str, Any], split: Split, count: int, seed: int) -> list[Problem]:
    """`count` different chains of `split`, the first n of which do not depend on `count`.

    Options: `min_steps` and `max_steps` (3 and 6); `notes`, the share of questions that come with a rumour about their
    answer (0), and `note_truth`, how often it is true (0.9). Raises DataError for options it does not know or cannot
    meet.
    """
    shares = _note_shares(options)
    shortest, longest = _lengths(options)
    available = sum(
        MODULUS * len(OPERANDS) ** length * len(templates(split, length)) for length in range(shortest, longest + 1)
    )
    empty = [length for length in range(shortest, longest + 1) if not templates(split, length)]
    if empty or count > available:
        raise DataError(
            f"chain_arithmetic: {count} problems asked of split {split}, but chains of {shortest} to {longest} steps "
            f"give only {0 if empty else available}; raise max_steps or lower count"
        )
    rng = Random(stable_seed("chain_arithmetic", split, seed))
    chains: dict[Chain, None] = {}
    while len(chains) < count:
        chains.setdefault(draw_chain(rng, split, shortest, longest))
    return [_with_note(chain_problem(chain), chain, *shares) for chain in chains]


def templates(split: Split, length: int) -> tuple[str, ...]:
    """Every template of `split` with `length` steps, in lexicographic order of OPERATIONS."""
    spelled = [""]
    for _ in range(length):
        spelled = [template + operation for template in spelled for operation in OPERATIONS]
    return tuple(template for template in spelled if split_of(template) == split)


def _lengths(options: Mapping[str, Any]) -> tuple[int, int]:
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise DataError(f"chain_arithmetic: unknown options {', '.join(unknown)}; known: {', '.join(OPTIONS)}")
    shortest, longest = options.get("min_steps", SHORTEST), options.get("max_steps", LONGEST)
    whole = all(type(length) is int for length in (shortest, longest))
    if not whole or not 1 <= shortest <= longest <= len(LABELS):
        raise DataError(
            f"chain_arithmetic: min_steps is {shortest!r} and max_steps {longest!r}; "
            f"1 <= min_steps <= max_steps <= {len(LABELS)} expected"
        )
    return shortest, longest


def _note_shares(options: Mapping[str, Any]) -> tuple[float, float]:
    shares = options.get("notes", 0.0), options.get("note_truth", 0.9)
    if any(isinstance(share, bool | str) or not 0 <= share <= 1 for share in shares):
        raise DataError(f"chain_arithmetic: notes is {shares[0]!r} and note_truth {shares[1]!r}; shares from 0 to 1")
    return float(shares[0]), float(shares[1])


def _with_note(problem: Problem, chain: Chain, notes: float, truth: float) -> Problem:
    """The problem with a rumour `claim N` beside it, or without one; drawn from its id alone."""
    rng = Random(stable_seed("chain_note", problem.id))
    if rng.random() >= notes:
        return problem
    wrong = [value for value in range(MODULUS) if value != chain.answer]
    claimed = chain.answer if rng.random() < truth else rng.choice(wrong)
    return replace(problem, meta={**problem.meta, "note": f"claim {claimed}"})
