"""Importance correction between the engine that sampled a token and the actor that learns from it.

Engine and actor hold the same weights and still disagree: other kernels, other precision, other expert routing. With
old the actor's log-probability at generation and behaviour the engine's,

    token level      r_t = exp(old_t - behaviour_t)
    sequence level   r   = exp(sum over the response of old_t - behaviour_t), the same for all of its tokens

The surrogate of a token is multiplied by a coefficient without gradient:

    truncated   min(r, high)                       truncated importance sampling (Yao et al. 2025)
    masked      r where low <= r <= high, else 0   masked importance sampling, IcePop

Statistics are of r before anything is truncated or masked, over all tokens and over all responses: what was rejected
counts in them. Powers beyond the upper bound are never taken for the coefficient, so it is finite; the statistics are
float64 and show an overflow as infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from megatron_seirenes.objectives.segments import segment_sums
from megatron_seirenes.objectives.token_loss import TokenBatch

CorrectionKind = Literal["none", "truncated", "masked"]
CorrectionLevel = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class Correction:
    """How the surrogate is corrected; `low` is used by `masked` alone."""

    kind: CorrectionKind
    level: CorrectionLevel = "token"
    high: float = 2.0
    low: float = 0.0


NO_CORRECTION = Correction("none")


def correct(batch: TokenBatch, correction: Correction) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The coefficient of every token ([tokens], detached), and what was measured a token before any rejection.

    The measured tensors are float64 [tokens]; those that begin with `sequence_` are per response, spread over its
    tokens so that their sum is the sum over responses, as `sequences` counts them. Raises ValueError when the batch
    lacks behaviour log-probabilities or segments.
    """
    if batch.behaviour_logprobs is None:
        raise ValueError("objective.correction needs the engine's log-probabilities, and the batch has none")
    segments = batch.require_segments()
    by_token = (batch.old_logprobs - batch.behaviour_logprobs).detach().double()
    by_sequence = segment_sums(by_token, segments)
    share = 1.0 / segment_sums(torch.ones_like(by_token), segments)
    measured = {
        "correction_mean": by_token.exp(),
        "correction_outside": _outside(by_token, correction),
        "sequences": share,
        "sequence_correction_mean": by_sequence.exp() * share,
        "sequence_correction_outside": _outside(by_sequence, correction) * share,
    }
    log_ratio = by_token if correction.level == "token" else by_sequence
    coefficient = log_ratio.clamp(max=math.log(correction.high)).exp()
    if correction.kind == "masked":
        coefficient = coefficient.masked_fill(_outside(log_ratio, correction), 0.0)
    return coefficient.to(batch.logprobs.dtype), measured


def _outside(log_ratio: torch.Tensor, correction: Correction) -> torch.Tensor:
    """Which ratios are beyond the bounds; the lower bound is one of `masked` alone."""
    beyond = log_ratio > math.log(correction.high)
    if correction.kind == "masked" and correction.low > 0:
        beyond = beyond | (log_ratio < math.log(correction.low))
    return beyond
