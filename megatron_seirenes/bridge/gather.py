"""Full Hugging Face tensors out of the live Megatron parameters: the source of every sync and every export.

A tensor that lies in one piece of one parameter is yielded as a view (no copy: gate and up, experts, norms, the trimmed
vocabulary); one that is spread (q, k, v of several query groups) is assembled. Views alias the live parameters: use
them before the next update. Everything must be on this rank; what is cut over ranks is refused, not gathered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy, Shard
from megatron_seirenes.bridge.live import BoundParameter, bind, this_rank
from megatron_seirenes.bridge.weight_map import HfTensor
from megatron_seirenes.errors import MissingComponentError

Piece = tuple[torch.Tensor, Copy]


def hf_tensors(
    modules: Sequence[torch.nn.Module], architecture: Architecture, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, torch.Tensor]]:
    """Streams (published name, tensor) in the fixed order of the weight map; a tied model has no `lm_head`.

    Tensors stay on the parameters' device, in `dtype` or the parameter's own. Raises DataError at the call when the
    model does not fit the architecture, MissingComponentError when other ranks hold a part of it.
    """
    shard = this_rank()
    weight_map, bound = bind(modules, architecture, shard)
    pieces = _pieces(bound)
    for tensor in weight_map.tensors.values():
        _check_whole(tensor, pieces.get(tensor.name, []), shard)
    return ((tensor.name, _assemble(tensor, pieces[tensor.name], dtype)) for tensor in weight_map.tensors.values())


def _pieces(bound: Sequence[BoundParameter]) -> dict[str, list[Piece]]:
    pieces: dict[str, list[Piece]] = {}
    for owner in bound:
        if owner.parameter.replica:
            continue
        for copy in owner.copies:
            pieces.setdefault(copy.hf_name, []).append((owner.tensor, copy))
    return pieces


def _check_whole(tensor: HfTensor, pieces: Sequence[Piece], shard: Shard) -> None:
    """Regions of one rank never overlap, so a tensor is whole here exactly when they hold all its elements."""
    if sum(_elements(copy) for _, copy in pieces) != math.prod(tensor.shape):
        raise MissingComponentError(
            f"{tensor.name} is spread over ranks (tensor {shard.tensor_size}, expert {shard.expert_size}, "
            f"expert_tensor {shard.expert_tensor_size}, or pipeline stages); gathering weights over ranks is not "
            "built yet: set these parallel sizes to 1"
        )


def _assemble(tensor: HfTensor, pieces: Sequence[Piece], dtype: torch.dtype | None) -> torch.Tensor:
    first, copy = pieces[0]
    if len(pieces) == 1:
        view = first[copy.local_index]
        return view if dtype is None else view.to(dtype)
    whole = torch.empty(tensor.shape, dtype=dtype or first.dtype, device=first.device)
    for live, copy in pieces:
        whole[copy.hf_index].copy_(live[copy.local_index])
    return whole


def _elements(copy: Copy) -> int:
    return math.prod(part.stop - part.start for part in copy.hf_index)
