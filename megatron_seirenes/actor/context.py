"""Context parallelism of packed sequences: every rank of the group works on its part of every sequence.

A sequence, padded to a multiple of 2 x size, is cut into that many chunks, and rank r holds chunks r and
2 x size - 1 - r (zigzag): under causal attention every rank then has the same work. Padding stands at a sequence's end,
where no real token sees it. Megatron-Core cuts rotary angles of packed sequences in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ContextShare:
    """This rank's place in its context-parallel group."""

    rank: int = 0
    size: int = 1

    def padded(self, length: int) -> int:
        """The length that a sequence of `length` tokens takes over all ranks."""
        return length if self.size == 1 else -(-length // (2 * self.size)) * 2 * self.size

    def own(self, padded: int) -> list[int]:
        """The positions of a padded sequence that this rank holds, in the order in which it holds them."""
        if self.size == 1:
            return list(range(padded))
        chunk = padded // (2 * self.size)
        last = 2 * self.size - 1 - self.rank
        return [
            *range(self.rank * chunk, (self.rank + 1) * chunk),
            *range(last * chunk, (last + 1) * chunk),
        ]

    def padding(self, own_tokens: int, alignment: int) -> int:
        """The length of an extra sequence that makes every rank's `own_tokens` divide by `alignment`, and not be 0."""
        missing = -own_tokens % alignment or (0 if own_tokens else alignment)
        if self.size > 1 and missing % 2:  # a rank's part of a sequence is two equal chunks
            missing += alignment
        if self.size > 1 and missing % 2:
            raise ValueError(f"{own_tokens} tokens a rank cannot be filled up to a multiple of {alignment}")
        return missing * self.size


def whole_order(lengths: list[int], size: int, device: torch.device) -> Tensor:
    """Where each token of the packed whole stands in the concatenation of all ranks' parts; int64 [tokens].

    `lengths` are padded lengths in the order of packing.
    """
    own_total = sum(lengths) // size
    place = torch.empty(sum(lengths), dtype=torch.int64)
    for rank in range(size):
        share, start, local = ContextShare(rank, size), 0, rank * own_total
        for length in lengths:
            held = share.own(length)
            place[torch.tensor(held) + start] = torch.arange(local, local + len(held))
            start, local = start + length, local + len(held)
    return place.to(device)


class GatherParts(torch.autograd.Function):
    """Parts of all ranks, one after the other along dimension 0; the gradient of a part is the sum over ranks."""

    @staticmethod
    def forward(context: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        context.rows = part.shape[0]
        parts = [torch.empty_like(part) for _ in range(group.size())]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        summed = gradients[0].contiguous()
        dist.all_reduce(summed, group=context.group)
        start = context.group.rank() * context.rows
        return summed[start : start + context.rows], None


def combined(own: Tensor, slots: Tensor, targets: int, group: dist.ProcessGroup) -> Tensor:
    """Values of all ranks' targets, [rows, targets]: `own` [rows, own targets] at `slots`, the others' beside them.

    Only this rank's own carry gradient here: each rank differentiates the whole loss by its own part.
    """
    whole = torch.zeros((own.shape[0], targets), dtype=own.dtype, device=own.device)
    whole[:, slots] = own.detach()
    dist.all_reduce(whole, group=group)
    return whole.index_copy(1, slots, own)
