"""The choices that games leave to a configuration, beside the numbers of their stages and streams. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

AdversaryCredit = Literal["reinforce", "group_relative"]
RobustHints = Literal["all", "misleading", "strongest"]


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """`max_age` counts collection steps, `min_delta` is the least Eq. 11 reward of a hint worth keeping."""

    max_age: int
    min_delta: float = 0.25


@dataclass(frozen=True, slots=True)
class GameOptions:
    """A game reads the options it knows and ignores the others, as with stages and streams.

    seirenes: `adversary` is how hints are credited, `robust_hints` which of them enter the robust update, `memory`
    keeps strong hints. static_hints: `hints` by problem id. cooperative_hints: `hint_share` of a solution is shown.
    """

    adversary: AdversaryCredit = "reinforce"
    robust_hints: RobustHints = "all"
    memory: MemoryOptions | None = None
    hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hint_share: float = 0.5
