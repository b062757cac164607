"""What each stream minimises, as sums over tokens (docs/objectives.md).

Every function here makes a `TokenLoss`: loss = sum over tokens of weight x token loss, so that any split of a flush
into micro-batches adds up to the same loss and gradient. Weights carry every average (`aggregation.py`); signs are such
that the loss is minimised. `LossSum.sums` are float64 sums over tokens, each divided by `tokens` for its mean:

    tokens          how many response tokens
    entropy         entropy of the policy at each token, nats
    ppo_kl          old - new log-probability: k1 of KL(old || new); exactly 0 when both come from the same computation
    clip_fraction   1 where clipping is active and lowers the objective; only where there is a ratio to clip
    reference_kl    k3 of KL(new || reference), whichever estimator is the penalty; only when a reference was scored
    correction_*, sequence_correction_*, sequences      engine against actor (`correction.py`); only when corrected

No log-ratio is clamped and no infinity or NaN is masked: where a bound of Eq. 3 is active the ratio is never
exponentiated beyond it, so that nothing overflows there; anywhere else a value that is not finite shows in the loss or
in `ppo_kl`, which is where to look for it (the gradient of a bound is zero even at NaN).
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from megatron_seirenes.objectives.correction import NO_CORRECTION, Correction, correct
from megatron_seirenes.objectives.kl import KL_ESTIMATORS, KlEstimator, k3, unbiased_penalty
from megatron_seirenes.objectives.segments import segment_means
from megatron_seirenes.objectives.token_loss import LossSum, TokenBatch, TokenLoss

RatioLevel = Literal["token", "sequence"]


def clipped_surrogate(
    clip_low: float,
    clip_high: float,
    reference_kl: float = 0.0,
    kl_estimator: KlEstimator = "k3",
    *,
    kl_unbiased: bool = False,
    ratio: RatioLevel = "token",
    entropy_bonus: float = 0.0,
    correction: Correction = NO_CORRECTION,
) -> TokenLoss:
    """The clipped surrogate of Eq. 3, 9 and 13: -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + beta KL.

    r = exp(new - old log-probability) of the token or, with `ratio` sequence, the exponential of the mean of that over
    the response (GSPO, arXiv:2507.18071); `reference_kl` is beta. Asymmetric bounds are DAPO's (arXiv:2503.14476). The
    surrogate alone is multiplied by the coefficient of `correction`. The loss raises ValueError when the batch lacks
    what a setting needs: reference or behaviour log-probabilities, segments.
    """
    lowest, highest = math.log1p(-clip_low), math.log1p(clip_high)

    def loss(batch: TokenBatch) -> LossSum:
        token_log_ratio = batch.logprobs - batch.old_logprobs
        log_ratio = token_log_ratio
        if ratio == "sequence":
            log_ratio = segment_means(token_log_ratio, batch.require_segments())
        gains = batch.advantages >= 0
        bounded = torch.where(gains, log_ratio.clamp(max=highest), log_ratio.clamp(min=lowest))
        token_loss, measured = _corrected(batch, -batch.advantages * bounded.exp(), correction)
        if reference_kl > 0:
            token_loss = token_loss + reference_kl * _kl_penalty(batch, kl_estimator, kl_unbiased)
        beyond = torch.where(gains, log_ratio > highest, log_ratio < lowest) & (batch.advantages != 0)
        measured |= {"ppo_kl": -token_log_ratio, "clip_fraction": beyond}
        return _weighted(batch, _with_entropy(batch, token_loss, entropy_bonus), measured)

    return loss


def reinforce(*, entropy_bonus: float = 0.0, correction: Correction = NO_CORRECTION) -> TokenLoss:
    """The Adversary's update, Eq. 12: -A log pi(token), with no ratio, no clip and no KL term."""

    def loss(batch: TokenBatch) -> LossSum:
        token_loss, measured = _corrected(batch, -batch.advantages * batch.logprobs, correction)
        measured["ppo_kl"] = batch.old_logprobs - batch.logprobs
        return _weighted(batch, _with_entropy(batch, token_loss, entropy_bonus), measured)

    return loss


def supervised() -> TokenLoss:
    """Cross-entropy on given responses: -log pi(token). Reads neither advantages nor old log-probabilities."""

    def loss(batch: TokenBatch) -> LossSum:
        return _weighted(batch, -batch.logprobs, {})

    return loss


def _corrected(
    batch: TokenBatch, surrogate: torch.Tensor, correction: Correction
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The surrogate times the coefficient of the correction, and what was measured of it."""
    if correction.kind == "none":
        return surrogate, {}
    coefficient, measured = correct(batch, correction)
    return coefficient * surrogate, measured


def _kl_penalty(batch: TokenBatch, estimator: KlEstimator, unbiased: bool) -> torch.Tensor:
    if batch.reference_logprobs is None:
        raise ValueError("objective.reference_kl is above 0 but the batch has no reference log-probabilities")
    if unbiased:
        return unbiased_penalty(estimator, batch.logprobs, batch.reference_logprobs, batch.old_logprobs)
    return KL_ESTIMATORS[estimator](batch.logprobs, batch.reference_logprobs)


def _with_entropy(batch: TokenBatch, token_loss: torch.Tensor, bonus: float) -> torch.Tensor:
    return token_loss - bonus * batch.entropy if bonus else token_loss


def _weighted(batch: TokenBatch, token_loss: torch.Tensor, measured: dict[str, torch.Tensor]) -> LossSum:
    """Joins the weighted loss (float32) with the sums of what was measured a token (float64)."""
    measured = {"tokens": torch.ones_like(batch.weights), "entropy": batch.entropy, **measured}
    if batch.reference_logprobs is not None:
        measured["reference_kl"] = k3(batch.logprobs, batch.reference_logprobs)
    return LossSum(
        loss=(batch.weights * token_loss).sum(),
        sums={name: values.detach().sum(dtype=torch.float64) for name, values in measured.items()},
    )
