"""What a set of judged answers says: avg@k, pass@k and maj@k of a question, and how sure their means are.

Means are over questions. Intervals resample questions, not answers: answers to one question are not independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2_000

Vote = tuple[bool, str | None]
"""Whether an answer is right, and the answer itself (None: there was none)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval, all as fractions."""

    mean: float
    low: float
    high: float


def average_at_k(correct: Sequence[Sequence[bool]]) -> float:
    """avg@k: the mean over questions of the share of correct answers."""
    return float(np.mean([np.mean(row) for row in correct]))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The unbiased estimate of P(at least one of k is right) for a question solved in `correct` of `samples`.

    1 − C(samples − correct, k) / C(samples, k): the share of subsets of k that hold a right answer (Chen et al. 2021).
    Raises ValueError unless 0 <= correct <= samples and 1 <= k <= samples.
    """
    if not (0 <= correct <= samples and 1 <= k <= samples):
        raise ValueError(f"pass@{k} of {correct} right in {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def majority_is_right(votes: Sequence[Vote]) -> float:
    """maj@k of one question: 1 when its most frequent answer is right, 0 when it is wrong.

    Right answers are one answer, however they are written; wrong ones are the same when their texts are. No answer is
    no vote. When the right answer is one of m that are most frequent, 1/m: what drawing one of them gives on average.
    """
    right = sum(correct for correct, _ in votes)
    wrong = Counter(" ".join(text.split()) for correct, text in votes if not correct and text is not None)
    rivals = list(wrong.values())
    if not right or right < max(rivals, default=0):
        return 0.0
    return 1.0 / (1 + rivals.count(right))


def bootstrap_interval(values: Sequence[float], seed: int) -> Estimate:
    """The mean of per-question values with a 95 % percentile interval over resampled questions."""
    return macro_interval([values], seed)


def macro_interval(benchmarks: Sequence[Sequence[float]], seed: int) -> Estimate:
    """The unweighted mean of benchmark means, its interval over questions resampled within each benchmark."""
    generator = np.random.default_rng(seed)
    arrays = [np.asarray(values, dtype=np.float64) for values in benchmarks]
    means = np.mean([_resampled_means(array, generator) for array in arrays], axis=0)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(np.mean([array.mean() for array in arrays])), float(low), float(high))


def paired_difference(before: Sequence[float], after: Sequence[float], seed: int) -> Estimate:
    """after − before of the same questions, with its 95 % interval. Raises ValueError when lengths differ."""
    if len(before) != len(after):
        raise ValueError(f"pairs need the same questions: {len(before)} before, {len(after)} after")
    return bootstrap_interval([b - a for a, b in zip(before, after, strict=True)], seed)


def _resampled_means(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """`RESAMPLES` means of resampled questions, a block at a time so that large benchmarks fit into memory."""
    block = max(1, 2_000_000 // len(array))
    sizes = [min(block, RESAMPLES - start) for start in range(0, RESAMPLES, block)]
    return np.concatenate(
        [array[generator.integers(0, len(array), size=(size, len(array)))].mean(axis=1) for size in sizes]
    )
