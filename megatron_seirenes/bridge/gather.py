"""Full Hugging Face tensors out of the live Megatron parameters: the source of every sync and every export.

What lies on this rank in one piece of one parameter is yielded as a view (no copy: gate and up, experts, norms, the
trimmed vocabulary); what is spread (q, k, v of several query groups) is assembled. Views alias the live parameters: use
them before the next update.

Where tensor, expert or pipeline parallelism spreads the model over ranks, every rank sees every tensor: regions that
not all ranks hold are broadcast, in buckets, so no rank holds more than a few buckets beyond its own shard. Then the
stream is collective: all ranks must read it to the end, in step.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy
from megatron_seirenes.bridge.live import BoundParameter, bind, this_rank
from megatron_seirenes.bridge.weight_map import HfTensor
from megatron_seirenes.errors import DataError

Piece = tuple[torch.Tensor, Copy]
Region = tuple[tuple[int, int], ...]
"""Start and stop of each dimension of a Hugging Face tensor."""

BUCKET_BYTES = 64 * 2**20
ALIGNMENT = 16
"""Bytes; a region begins at a multiple of it within a buffer, whatever its dtype."""


def hf_tensors(
    modules: Sequence[torch.nn.Module],
    architecture: Architecture,
    dtype: torch.dtype | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Streams (published name, tensor) in the fixed order of the weight map; a tied model has no `lm_head`.

    Tensors stay on the parameters' device, in `dtype` or the parameter's own. Collective when there are several ranks.
    Raises DataError at the call when the model does not fit the architecture, or the ranks do not hold all of it.
    """
    weight_map, bound = bind(modules, architecture, this_rank())
    tensors = list(weight_map.tensors.values())
    pieces = _pieces(bound)
    holders = _holders(pieces)
    for tensor in tensors:
        _check_whole(tensor, holders.get(tensor.name, {}))
    if not _spread(holders):
        return ((tensor.name, _assemble(tensor, pieces[tensor.name], dtype)) for tensor in tensors)
    return _gathered(tensors, pieces, holders, dtype, bucket_bytes)


def _pieces(bound: Sequence[BoundParameter]) -> dict[str, list[Piece]]:
    pieces: dict[str, list[Piece]] = {}
    for owner in bound:
        if owner.parameter.replica:
            continue
        for copy in owner.copies:
            pieces.setdefault(copy.hf_name, []).append((owner.tensor, copy))
    return pieces


def _assemble(tensor: HfTensor, pieces: Sequence[Piece], dtype: torch.dtype | None) -> torch.Tensor:
    first, copy = pieces[0]
    if len(pieces) == 1:
        view = first[copy.local_index]
        return view if dtype is None else view.to(dtype)
    whole = torch.empty(tensor.shape, dtype=dtype or first.dtype, device=first.device)
    for live, copy in pieces:
        whole[copy.hf_index].copy_(live[copy.local_index])
    return whole


# -- over ranks


@dataclass(frozen=True, slots=True)
class _Held:
    """A region of a tensor: which ranks hold it, ascending, and in which dtype."""

    ranks: tuple[int, ...]
    dtype: torch.dtype


Holders = Mapping[str, Mapping[Region, _Held]]


def _region(copy: Copy) -> Region:
    return tuple((part.start, part.stop) for part in copy.hf_index)


def _elements(region: Region) -> int:
    return math.prod(stop - start for start, stop in region)


def _holders(pieces: Mapping[str, Sequence[Piece]]) -> Holders:
    """Every region of every tensor with the ranks that hold it; the same on all ranks. Collective."""
    mine = [(name, _region(copy), live.dtype) for name, owned in pieces.items() for live, copy in owned]
    everyone = [mine]
    if dist.is_initialized() and dist.get_world_size() > 1:
        everyone = [[]] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
    ranks: dict[str, dict[Region, list[int]]] = {}
    dtypes: dict[str, torch.dtype] = {}
    for rank, owned in enumerate(everyone):
        for name, region, dtype in owned:
            ranks.setdefault(name, {}).setdefault(region, []).append(rank)
            dtypes[name] = dtype
    return {
        name: {region: _Held(tuple(found), dtypes[name]) for region, found in sorted(regions.items())}
        for name, regions in ranks.items()
    }


def _spread(holders: Holders) -> bool:
    world = dist.get_world_size() if dist.is_initialized() else 1
    return any(len(held.ranks) < world for regions in holders.values() for held in regions.values())


def _check_whole(tensor: HfTensor, regions: Mapping[Region, _Held]) -> None:
    """Regions of different shards never overlap, so a tensor is whole exactly when they hold all its elements."""
    held = sum(_elements(region) for region in regions)
    if held != math.prod(tensor.shape):
        raise DataError(
            f"{tensor.name}: the ranks hold {held} of its {math.prod(tensor.shape)} elements together; "
            "the modules are not those of one whole model"
        )


def _gathered(
    tensors: Sequence[HfTensor],
    pieces: Mapping[str, Sequence[Piece]],
    holders: Holders,
    dtype: torch.dtype | None,
    bucket_bytes: int,
) -> Iterator[tuple[str, torch.Tensor]]:
    own = {(name, _region(copy)): live[copy.local_index] for name, owned in pieces.items() for live, copy in owned}
    device = next(iter(own.values())).device
    world, rank = dist.get_world_size(), dist.get_rank()
    for bucket in _buckets(tensors, holders, bucket_bytes):
        travelling: dict[int, list[tuple[str, Region, torch.dtype]]] = {}
        for tensor in bucket:
            for turn, (region, held) in enumerate(holders[tensor.name].items()):
                if len(held.ranks) < world:
                    source = held.ranks[turn % len(held.ranks)]
                    travelling.setdefault(source, []).append((tensor.name, region, held.dtype))
        arrived: dict[tuple[str, Region], torch.Tensor] = {}
        for source, regions in sorted(travelling.items()):
            buffer, views = _buffer(regions, device)
            if source == rank:
                for key, view in views.items():
                    view.copy_(own[key])
            dist.broadcast(buffer, src=source)
            arrived |= {key: view for key, view in views.items() if key not in own}
        for tensor in bucket:
            yield tensor.name, _whole(tensor, holders[tensor.name], ChainMap(arrived, own), dtype)


def _whole(
    tensor: HfTensor,
    regions: Mapping[Region, _Held],
    found: Mapping[tuple[str, Region], torch.Tensor],
    dtype: torch.dtype | None,
) -> torch.Tensor:
    parts = {region: found[tensor.name, region] for region in regions}
    first = next(iter(parts.values()))
    if len(parts) == 1:
        return first if dtype is None else first.to(dtype)
    whole = torch.empty(tensor.shape, dtype=dtype or first.dtype, device=first.device)
    for region, part in parts.items():
        whole[tuple(slice(*bounds) for bounds in region)].copy_(part)
    return whole


def _buckets(tensors: Sequence[HfTensor], holders: Holders, bucket_bytes: int) -> Iterator[list[HfTensor]]:
    """Runs of tensors of at most `bucket_bytes`; a larger tensor has one of its own."""
    bucket: list[HfTensor] = []
    filled = 0
    for tensor in tensors:
        size = math.prod(tensor.shape) * next(iter(holders[tensor.name].values())).dtype.itemsize
        if bucket and filled + size > bucket_bytes:
            yield bucket
            bucket, filled = [], 0
        bucket.append(tensor)
        filled += size
    if bucket:
        yield bucket


def _buffer(
    regions: Sequence[tuple[str, Region, torch.dtype]], device: torch.device
) -> tuple[torch.Tensor, dict[tuple[str, Region], torch.Tensor]]:
    """Bytes for all the regions, and a view of each in its own dtype and shape."""
    places, size = [], 0
    for name, region, dtype in regions:
        places.append((name, region, dtype, size))
        size += -(-_elements(region) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    buffer = torch.empty(size, dtype=torch.uint8, device=device)
    views = {}
    for name, region, dtype, start in places:
        shape = [stop - first for first, stop in region]
        views[name, region] = buffer[start : start + _elements(region) * dtype.itemsize].view(dtype).view(shape)
    return buffer, views
