"""Group-relative advantages (Eq. 2), over the plain floats that credit works with.

They are exactly zero, never a rounding residue, when all rewards of a group are equal: whether a group carries signal
is decided by comparing rewards, not by looking at a standard deviation. The paper does not say which standard deviation
it means; ours divides by n - 1. Imports no torch, so that games stay light.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

AdvantageKind = Literal["standardized", "centered", "leave_one_out"]

DEFAULT_EPSILON = 1e-6


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether the rewards of one group differ at all, that is, whether any advantage is not zero."""
    return any(reward != rewards[0] for reward in rewards[1:])


def group_advantages(
    rewards: Sequence[float], *, epsilon: float = DEFAULT_EPSILON, kind: AdvantageKind = "standardized"
) -> tuple[float, ...]:
    """Eq. 2 for one group: (R_i - mean) / (std + epsilon), with the sample standard deviation (n - 1).

    `centered` leaves the division out (Dr.GRPO, arXiv:2503.20783). `leave_one_out` takes off the mean of the *other*
    rewards (RLOO, arXiv:2402.14740), which is n / (n - 1) times `centered`. A group of one has advantage zero.
    """
    if not has_signal(rewards):
        return (0.0,) * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    deviations = [reward - mean for reward in rewards]
    if kind == "centered":
        return tuple(deviations)
    if kind == "leave_one_out":
        return tuple(deviation * len(rewards) / (len(rewards) - 1) for deviation in deviations)
    std = math.sqrt(math.fsum(deviation**2 for deviation in deviations) / (len(rewards) - 1))
    return tuple(deviation / (std + epsilon) for deviation in deviations)
