"""What is arguable about two answers being the same, each point by name (docs/judge.md gives the reasons)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Options:
    r"""How strict equality is.

    `percent`: `value` reads 50% as 0.5 and as nothing else; `unit` lets the sign be missing, so that 50 is 50%, too.
    `units`: `optional` lets a unit be missing on one side; `required` wants the gold's unit.
    `unsimplified`: whether `2+3` passes for a gold that is the numeral 5.
    `letter_case`: whether `a` passes for `A`. Words of two letters and more are compared without case.
    `decimal_digits`: a decimal stands for a number that has no finite decimal when it is that number rounded to at
    least so many significant digits (0.333333 for 1/3).
    `relative_tolerance`: how far a decimal may be from the gold, relative to the gold; 0 compares exactly.
    """

    percent: Literal["value", "unit"] = "value"
    units: Literal["optional", "required"] = "optional"
    unsimplified: Literal["refuse", "accept"] = "refuse"
    letter_case: Literal["strict", "ignore"] = "strict"
    decimal_digits: int = 6
    relative_tolerance: float = 0.0
