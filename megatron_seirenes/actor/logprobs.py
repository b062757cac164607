"""Log-probabilities and entropy of given tokens, without ever holding the logits of all of them.

For hidden states h_t and output weights W, split over the tensor-parallel group by rows (words),

    z_t = h_t W^T / temperature        log p_t(v) = z_t[v] - log sum_u exp z_t[u]        H_t = -sum_v p_t(v) log p_t(v)

Logits are computed for `chunk_tokens` tokens at a time and dropped; the backward pass computes them again, chunk by
chunk, from the saved log-sum-exp:

    d log p_t(y) / d z_t[v] = 1[v = y] - p_t(v)        d H_t / d z_t[v] = -p_t(v) (log p_t(v) + H_t)

Peak memory is two [chunk, words] float32 tensors whatever the number of tokens. Entropy carries gradient only with
`entropy_gradient`, which takes one such tensor more.

Words from `sampled_vocabulary` on are taken out of the softmax (probability 0): padded rows that the engine never
samples must not take part. They are a tail of W, so they are cut off, not masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """`tensor_parallel_group` is None, or the group over whose ranks the rows of the output weight are split evenly."""

    chunk_tokens: int
    temperature: float = 1.0
    sampled_vocabulary: int | None = None
    tensor_parallel_group: dist.ProcessGroup | None = None
    entropy_gradient: bool = False


def token_logprobs(hidden: Tensor, weight: Tensor, targets: Tensor, options: LogprobOptions) -> tuple[Tensor, Tensor]:
    """Log-probability (natural logarithm) and entropy (nats) of `targets`.

    `hidden` is [tokens, hidden_size] and the same on all ranks of the group, `weight` is this rank's
    [words / ranks, hidden_size], `targets` is int64 [tokens] of global word ids below `sampled_vocabulary`. Returns
    two float32 tensors [tokens]; the first carries gradient to `hidden` (this rank's part: the caller sums it over
    the group) and to `weight`, and so does the second with `entropy_gradient`.
    """
    return _TokenLogprobs.apply(hidden, weight, targets, options)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, options: LogprobOptions
    ) -> tuple[Tensor, Tensor]:
        shard = _Shard(weight, options)
        logprobs, log_total, entropy = (
            torch.empty(len(targets), dtype=torch.float32, device=hidden.device) for _ in range(3)
        )
        for chunk in _chunks(len(targets), options.chunk_tokens):
            logprobs[chunk], log_total[chunk], entropy[chunk] = shard.score(hidden[chunk], targets[chunk])
        ctx.save_for_backward(hidden, weight, targets, log_total, entropy)
        ctx.options = options
        if not options.entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, grad_logprobs: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, log_total, entropy = ctx.saved_tensors
        shard = _Shard(weight, ctx.options)
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        rows = grad_weight[: shard.words]
        for chunk in _chunks(len(targets), ctx.options.chunk_tokens):
            of_entropy = (grad_entropy[chunk], entropy[chunk]) if ctx.options.entropy_gradient else None
            grad_logits = shard.grad_logits(
                hidden[chunk], targets[chunk], log_total[chunk], grad_logprobs[chunk], of_entropy
            )
            grad_hidden[chunk] = grad_logits @ shard.weight
            _add_product(rows, grad_logits.t(), hidden[chunk])
        return grad_hidden, grad_weight.to(weight.dtype), None, None


class _Shard:
    """This rank's words: rows [first, first + words) of the output weight."""

    def __init__(self, weight: Tensor, options: LogprobOptions) -> None:
        self.group = options.tensor_parallel_group
        self.scale = 1.0 / options.temperature
        rank = dist.get_rank(self.group) if self.group is not None else 0
        self.first = rank * len(weight)
        sampled = options.sampled_vocabulary
        self.words = len(weight) if sampled is None else min(max(sampled - self.first, 0), len(weight))
        self.weight = weight[: self.words]

    def score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability of the targets, logarithm of the softmax's denominator, and entropy; each [tokens]."""
        logits = self._logits(hidden)
        largest = self._reduce(_row_max(logits), dist.ReduceOp.MAX)
        logits -= largest[:, None]
        mine, index = self._locate(targets)
        chosen = logits.gather(1, index).squeeze(1).where(mine, 0.0) if self.words else logits.new_zeros(len(targets))
        exponentials = logits.exp()
        total = exponentials.sum(dim=1)
        weighted = exponentials.mul_(logits).sum(dim=1)
        chosen, total, weighted = self._reduce(torch.stack((chosen, total, weighted)), dist.ReduceOp.SUM)
        log_total = total.log()
        return chosen - log_total, largest + log_total, log_total - weighted / total

    def grad_logits(
        self,
        hidden: Tensor,
        targets: Tensor,
        log_total: Tensor,
        grad_logprobs: Tensor,
        of_entropy: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Gradient with respect to h W^T, [tokens, words], in the dtype of `hidden`.

        `of_entropy` is the gradient of the entropies and the entropies, [tokens] each, when they carry gradient.
        """
        grad = self._logits(hidden).sub_(log_total[:, None])
        scaled = grad_logprobs * self.scale
        factor = -scaled[:, None]
        if of_entropy is not None:
            grad_entropy, entropy = of_entropy
            factor = factor - (grad + entropy[:, None]).mul_(grad_entropy[:, None] * self.scale)
        grad = grad.exp_().mul_(factor)
        if self.words:
            mine, index = self._locate(targets)
            grad.scatter_add_(1, index, scaled.where(mine, 0.0)[:, None])
        return grad.to(hidden.dtype)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = (hidden @ self.weight.t()).float()
        return logits if self.scale == 1.0 else logits.mul_(self.scale)

    def _locate(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Which targets are words of this rank, and their column, [tokens, 1]; column 0 for those of others."""
        local = targets - self.first
        mine = (local >= 0) & (local < self.words)
        return mine, local.where(mine, 0)[:, None]

    def _reduce(self, values: Tensor, operation: Any) -> Tensor:
        if self.group is not None:
            dist.all_reduce(values, op=operation, group=self.group)
        return values


def _chunks(tokens: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, tokens, size))


def _row_max(logits: Tensor) -> Tensor:
    if logits.shape[1] == 0:
        return logits.new_full((len(logits),), float("-inf"))
    return logits.amax(dim=1)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, with `total` in float32 whatever the operands are."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
