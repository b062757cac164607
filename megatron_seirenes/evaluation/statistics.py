"""What a set of judged answers says: avg@k and how sure it is.

Rows are questions, columns samples. The interval resamples questions, not answers: answers to one question are not
independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval, all as fractions."""

    mean: float
    low: float
    high: float


def average_at_k(correct: Sequence[Sequence[bool]]) -> float:
    """avg@k: the mean over questions of the share of correct answers."""
    return float(np.mean([np.mean(row) for row in correct]))


def bootstrap_interval(values: Sequence[float], seed: int) -> Estimate:
    """The mean of per-question values with a 95 % percentile interval over resampled questions."""
    array = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(seed)
    means = array[generator.integers(0, len(array), size=(RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(array.mean()), float(low), float(high))


def paired_difference(before: Sequence[float], after: Sequence[float], seed: int) -> Estimate:
    """after − before of the same questions, with its 95 % interval. Raises ValueError when lengths differ."""
    if len(before) != len(after):
        raise ValueError(f"pairs need the same questions: {len(before)} before, {len(after)} after")
    return bootstrap_interval([b - a for a, b in zip(before, after, strict=True)], seed)
