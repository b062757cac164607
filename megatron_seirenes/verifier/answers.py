r"""What kind of thing an answer is: a number, several, a tuple, a region, an equation, a matrix, a time, words.

Plain records: `reading.py` makes them of text, `comparison.py` compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from megatron_seirenes.verifier.expression import Node
from megatron_seirenes.verifier.units import Unit


@dataclass(frozen=True, slots=True)
class Scalar:
    node: Node
    unit: Unit | None = None
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """Text; `mixed` when mathematics stands in it, which then counts as text, too."""

    text: str
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """A tuple, vector, list or interval: `brackets` are as written, `<>` counts as `()`."""

    items: tuple[Answer, ...]
    brackets: str


@dataclass(frozen=True, slots=True)
class Several:
    """Answers in any order. `braces` when written as a set."""

    items: tuple[Answer, ...]
    braces: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval; None is infinite. A point is a closed interval from itself to itself."""

    low: Node | None
    low_closed: bool
    high: Node | None
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A union of intervals. `by_inequality` when it was written as one."""

    pieces: tuple[Piece, ...]
    by_inequality: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 5`, `f(x) = 2x`, `x \\in (0, 1)`, `Area = 5`."""

    name: str
    value: Answer


@dataclass(frozen=True, slots=True)
class Relation:
    """`left op right` with `op` one of `=`, `!=`, `>`, `>=`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day; `afternoon` None when am or pm is not said."""

    hour: int
    minute: int
    second: int
    afternoon: bool | None


@dataclass(frozen=True, slots=True)
class Ratio:
    parts: tuple[Node, ...]


Answer = Scalar | Words | Ordered | Several | Region | Named | Relation | Matrix | Clock | Ratio
