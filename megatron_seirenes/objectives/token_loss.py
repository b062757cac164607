"""The joint between an objective and the actor: a loss that is a plain sum over response tokens.

The actor packs sequences into micro-batches as it likes and calls a `TokenLoss` once a micro-batch; because every
token carries its final weight, the sum over micro-batches and ranks is the loss of the whole flush, however it was
split. Weights therefore come from the whole flush (`aggregation.py`), never from a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The response tokens of one micro-batch, all tensors float32 of shape [tokens] unless said otherwise.

    `logprobs` carries gradient; `entropy` (nats) does only where the actor was asked for it (an entropy bonus).
    `weights` already holds every average of the objective. `segments` (int64) says which response of the micro-batch a
    token belongs to: 0, 1, 2, ... in the order of the tokens, each response in one piece and never split over
    micro-batches, so that a sum over a segment is a sum over a whole response. `behaviour_logprobs` are the engine's,
    where they differ from `old_logprobs` and the objective corrects for it.
    """

    logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    entropy: torch.Tensor
    reference_logprobs: torch.Tensor | None = None
    behaviour_logprobs: torch.Tensor | None = None
    segments: torch.Tensor | None = None

    def require_segments(self) -> torch.Tensor:
        """`segments`. Raises ValueError when the batch does not say which response its tokens belong to."""
        if self.segments is None:
            raise ValueError("the objective looks at whole responses, but the batch has no segments")
        return self.segments


@dataclass(frozen=True, slots=True)
class LossSum:
    """`loss` is a scalar to be summed over micro-batches and ranks; `sums` are detached scalars to be summed likewise.

    `sums` holds at least `tokens`; means over tokens are formed after summing, as `sums[name] / sums["tokens"]`.
    """

    loss: torch.Tensor
    sums: Mapping[str, torch.Tensor]


TokenLoss = Callable[[TokenBatch], LossSum]
