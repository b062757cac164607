"""Estimators of KL(pi || ref) per token from one sample (J. Schulman, "Approximating KL Divergence", 2020).

With x = log pi(token) - log ref(token) and tokens drawn from pi:

    k1 = x                        unbiased, any sign, high variance
    k2 = x^2 / 2                  biased, never negative
    k3 = exp(-x) - 1 + x          unbiased, never negative, low variance

As penalties they differ from what their values suggest, because only x carries gradient, not the sampling: d k1 is the
plain score, whose mean is zero, so k1 regularises nothing; the mean of d k2 is the gradient of KL(pi || ref); the mean
of d k3 is the gradient of KL(ref || pi), the other direction. GRPO uses k3. None is corrected by an importance ratio
when the tokens come from an older policy, as in GRPO.

`unbiased_penalty` mends both: its mean gradient over tokens drawn from the older policy is that of KL(pi || ref) for
every estimator. With r = pi(token) / old(token), whose gradient is r times the score,

    r k1, gradient through r:    r (x + 1) score     k1 + 1 instead of 1, the missing part of the derivative
    r k2, none through r:        r x score           the mean of k2 is no KL, its plain gradient is the right one
    r k3, gradient through r:    r x score           the same gradient, and its value is a KL (DeepSeek-V3.2)

The distribution of the prefixes stays that of the older policy, as everywhere in PPO.

All take and return float tensors of shape [tokens] in nats and carry gradient into `logprobs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

KlEstimator = Literal["k1", "k2", "k3"]


def k1(logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    return logprobs - reference_logprobs


def k2(logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    return 0.5 * (logprobs - reference_logprobs).square()


def k3(logprobs: torch.Tensor, reference_logprobs: torch.Tensor) -> torch.Tensor:
    inverse_log_ratio = reference_logprobs - logprobs
    return torch.expm1(inverse_log_ratio) - inverse_log_ratio


KL_ESTIMATORS: dict[KlEstimator, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def unbiased_penalty(
    estimator: KlEstimator, logprobs: torch.Tensor, reference_logprobs: torch.Tensor, old_logprobs: torch.Tensor
) -> torch.Tensor:
    """A penalty [tokens] whose mean gradient, over tokens of the policy of `old_logprobs`, is that of KL(pi || ref)."""
    ratio = (logprobs - old_logprobs).exp()
    if estimator == "k2":
        ratio = ratio.detach()
    return ratio * KL_ESTIMATORS[estimator](logprobs, reference_logprobs)
