"""What can be said about a chain: hints, true and wrong, their grammar, and worked solutions with mistakes.

A hint of the small world is a sequence of statements about one question:

    claim N     the answer is N
    X N         the value after step X is N
    X op K      step X applies `op K` (a restatement)

`parse_statements` is the whole grammar and the only one: the gate on hints, the analysis of what an Adversary says and
the tests all read hints through it. It refuses labels that the question does not have, values and operands outside
the world, and a label or claim said twice, because an Adversary that may repeat labels without end learns label spam
that beats every policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from megatron_seirenes.problems.chains import LABELS, MODULUS, OPERANDS, OPERATIONS, Chain, ChainStep

HintKind = Literal["steps", "claim", "restatement"]


@dataclass(frozen=True, slots=True)
class Claim:
    """`claim N`."""

    value: int

    def holds(self, chain: Chain) -> bool:
        return self.value == chain.answer


@dataclass(frozen=True, slots=True)
class StepValue:
    """`X N`; `index` counts steps from 0."""

    index: int
    value: int

    def holds(self, chain: Chain) -> bool:
        return self.value == chain.values[self.index]


@dataclass(frozen=True, slots=True)
class Restatement:
    """`X op K`."""

    index: int
    step: ChainStep

    def holds(self, chain: Chain) -> bool:
        return self.step == chain.steps[self.index]


Statement = Claim | StepValue | Restatement


@dataclass(frozen=True, slots=True)
class Hint:
    """A hint as it was made.

    `believed` is the chain of someone who trusts the hint: they take `believed_value` for the value after the first
    `steps_done` steps of it and go on from there (a restatement changes the chain; a claim is the value after all).
    """

    kind: HintKind
    text: str
    true: bool
    believed: Chain
    steps_done: int
    believed_value: int


def parse_statements(text: str, chain: Chain) -> tuple[Statement, ...]:
    """The statements of a hint about `chain`. Raises ValueError, whose message is the reason, for anything else."""
    words = text.split()
    if not words:
        raise ValueError("no statement")
    statements: list[Statement] = []
    said: set[str] = set()
    position = 0
    while position < len(words):
        subject = words[position]
        if subject in said:
            raise ValueError(f"{subject!r} is said twice")
        statement, used = _parse_one(words[position : position + 3], chain)
        said.add(subject)
        statements.append(statement)
        position += used
    return tuple(statements)


def make_hint(rng: Random, chain: Chain, true: bool, kind: HintKind) -> Hint:
    """A hint of `kind` about `chain` that is true, or false in what it says last.

    `steps` tells the values of the first j steps, j uniform; a wrong one has one mistake in it, carried on, and ends in
    a wrong value because every step is invertible modulo the prime 11. `restatement` changes the operation or the
    operand of one step. `claim` is an answer.
    """
    if kind == "claim":
        wrong = [value for value in range(MODULUS) if value != chain.answer]
        value = chain.answer if true else rng.choice(wrong)
        return Hint(kind, f"claim {value}", true, chain, len(chain.steps), value)
    if kind == "restatement":
        return _make_restatement(rng, chain, true)
    return _make_steps(rng, chain, true)


def work(
    rng: Random, chain: Chain, mistake_rate: float = 0.0, first: int = 0, value: int | None = None
) -> tuple[list[str], int]:
    """Works a chain from step `first`, where it stands at `value` (at first: its start).

    Each step goes wrong with probability `mistake_rate`. Returns the worked steps (`X N` each) and the final value.
    """
    value = chain.start if value is None else value
    lines = []
    for label, step in zip(LABELS[first:], chain.steps[first:], strict=False):
        value = mistaken(rng, value, step) if rng.random() < mistake_rate else step.apply(value)
        lines.append(f"{label} {value}")
    return lines, value


def boxed(value: int) -> str:
    """The end of an answer."""
    return f"\\boxed{{ {value} }}"


def mistaken(rng: Random, value: int, step: ChainStep) -> int:
    """A wrong value after `step`: one off, or what another operation would have given."""
    right = step.apply(value)
    confused = [replace(step, operation=other).apply(value) for other in OPERATIONS if other != step.operation]
    candidates = [(right + 1) % MODULUS, (right - 1) % MODULUS, *confused]
    return rng.choice([candidate for candidate in candidates if candidate != right])


def _make_restatement(rng: Random, chain: Chain, true: bool) -> Hint:
    index = rng.randrange(len(chain.steps))
    step = chain.steps[index]
    if not true and rng.random() < 0.5:
        step = replace(step, operation=rng.choice([other for other in OPERATIONS if other != step.operation]))
    elif not true:
        step = replace(step, operand=rng.choice([other for other in OPERANDS if other != step.operand]))
    believed = Chain(chain.start, (*chain.steps[:index], step, *chain.steps[index + 1 :]))
    text = f"{LABELS[index]} {step.operation} {step.operand}"
    return Hint("restatement", text, true, believed, 0, chain.start)


def _make_steps(rng: Random, chain: Chain, true: bool) -> Hint:
    told = rng.randint(1, len(chain.steps))
    wrong_at = None if true else rng.randrange(told)
    value, lines = chain.start, []
    for index, step in enumerate(chain.steps[:told]):
        value = mistaken(rng, value, step) if index == wrong_at else step.apply(value)
        lines.append(f"{LABELS[index]} {value}")
    return Hint("steps", " ".join(lines), true, chain, told, value)


def _parse_one(words: list[str], chain: Chain) -> tuple[Statement, int]:
    """The statement that `words` (at most three) open with, and how many of them it takes."""
    subject, *rest = words
    if subject == "claim":
        return Claim(_value(rest)), 2
    labels = LABELS[: len(chain.steps)]
    if subject not in labels:
        raise ValueError(f"{subject!r} is no label of this question")
    index = labels.index(subject)
    if rest and rest[0] in OPERATIONS:
        operand = rest[1] if len(rest) > 1 else "nothing"
        if operand not in map(str, OPERANDS):
            raise ValueError(f"{operand!r} is no operand")
        return Restatement(index, ChainStep(rest[0], int(operand))), 3
    return StepValue(index, _value(rest)), 2


def _value(words: list[str]) -> int:
    word = words[0] if words else "nothing"
    if word not in map(str, range(MODULUS)):
        raise ValueError(f"{word!r} is no value")
    return int(word)
