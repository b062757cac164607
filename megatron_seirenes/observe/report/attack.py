"""Attack-strength statistics over a run (paper, Appendix E and Table 4). Pure.

A step is strong when attack/delta is above 5 points. Steps without a delta are left out, and halves, streaks and the
slope are counted over the steps that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, linear_regression

THRESHOLDS = (0.03, 0.04, 0.05)
STRONG = 0.05
WINDOW = 21


@dataclass(frozen=True, slots=True)
class AttackStatistics:
    """One row of Table 4.

    `tail[i]` is the share of steps with delta above `THRESHOLDS[i]`; `early` and `late` are the shares of strong steps
    in the two halves (null for a run of one step); `slope` is of the 21-step moving share of strong steps, in share a
    step (null while there are fewer than 22 steps).
    """

    steps: int
    tail: tuple[float, ...]
    early: float | None
    late: float | None
    slope: float | None
    longest_streak: int
    strong_steps: int


def attack_statistics(deltas: Sequence[float]) -> AttackStatistics | None:
    """The statistics of a run's attack/delta in order of steps; None when there is no step."""
    if not deltas:
        return None
    strong = [delta > STRONG for delta in deltas]
    half = len(strong) // 2
    return AttackStatistics(
        steps=len(deltas),
        tail=tuple(fmean(delta > threshold for delta in deltas) for threshold in THRESHOLDS),
        early=fmean(strong[:half]) if half else None,
        late=fmean(strong[half:]) if half else None,
        slope=_slope(moving_mean([float(mark) for mark in strong], WINDOW)),
        longest_streak=max((len(list(marks)) for mark, marks in groupby(strong) if mark), default=0),
        strong_steps=sum(strong),
    )


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """Means over `window` consecutive values; shorter than `values` by window − 1, empty when there are too few."""
    return [fmean(values[start : start + window]) for start in range(len(values) - window + 1)]


def _slope(values: Sequence[float]) -> float | None:
    return linear_regression(range(len(values)), values).slope if len(values) >= 2 else None
