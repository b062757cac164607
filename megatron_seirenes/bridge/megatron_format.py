"""The names and places of weights in Megatron-Core's distributed checkpoints (`torch_dist`): pure data.

A checkpoint knows no layout: it holds whole tensors in chunks, those of all layers under one key with the layer as the
first axis, those of all experts with the expert as the second. Only a chunk's file says which rank wrote it. Keys are
the ones that Megatron-Core 0.19 gives both layer specs, with one exception: the norm before a mixture of experts, which
the local spec calls `mlp.linear_fc1.layer_norm_weight` and Transformer Engine's `pre_mlp_layernorm.weight`. It is
stored under both names, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy, Parameter, Shard, regions
from megatron_seirenes.bridge.weight_map import build_weight_map

_KEYS: dict[str, tuple[str, ...]] = {
    "input_layernorm.weight": ("self_attention.linear_qkv.layer_norm_weight",),
    "pre_mlp_layernorm.weight": ("mlp.linear_fc1.layer_norm_weight",),
}
_MOE_NORM = ("pre_mlp_layernorm.weight", ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"))
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"\.local_experts\.(\d+)\.")

# Modules that save an extra state, which is None without FP8; Megatron-Core wants to find one when it loads.
_WITH_EXTRA_STATE = ("self_attention.linear_proj", "self_attention.linear_qkv")
_DENSE_EXTRA_STATE = ("mlp.linear_fc1", "mlp.linear_fc2")
_EXPERT_EXTRA_STATE = ("mlp.experts.experts.linear_fc1", "mlp.experts.experts.linear_fc2")


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one parameter lies: the same numbers under each of `keys`, at `index` of the leading axes of `lengths`."""

    keys: tuple[str, ...]
    index: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A block of a whole parameter from `offset`, filled by `copies`; their local indices count within the block."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    copies: tuple[Copy, ...]


def stored_as(name: str, architecture: Architecture) -> Stored:
    """The keys and the place of the parameter with the global `name`."""
    layer = _LAYER.fullmatch(name)
    if layer is None:
        return Stored((name,), (), ())
    number, suffix = int(layer.group(1)), layer.group(2)
    expert = _EXPERT.search(suffix)
    if expert is not None and architecture.experts is not None:
        key = "decoder.layers." + _EXPERT.sub(".experts.", suffix)
        return Stored((key,), (number, int(expert.group(1))), (architecture.layers, architecture.experts.count))
    keys = _KEYS.get(suffix, (suffix,))
    if architecture.experts is not None and suffix == _MOE_NORM[0]:
        keys = _MOE_NORM[1]
    return Stored(tuple(f"decoder.layers.{key}" for key in keys), (number,), (architecture.layers,))


def chunks_of(parameter: Parameter, shard: Shard) -> Iterator[Chunk]:
    """The blocks of the whole parameter that `shard` holds: one for each of its parts (gate and up apart)."""
    rank, size = shard.place(parameter.group)
    by_rows = size if parameter.dim == 0 else 1
    by_columns = size if parameter.dim == 1 else 1
    columns = parameter.shape[1:]
    held = tuple(columns[0] // by_columns for _ in columns)
    part_row = local_row = 0
    copies = regions(parameter, shard)
    for part in parameter.parts:
        rows = sum(block.rows for block in part)
        share = rows // by_rows
        first = rank * share if parameter.dim == 0 else 0
        offset = (part_row + first, *(rank * width if parameter.dim == 1 else 0 for width in held))
        mine = (copy for copy in copies if local_row <= copy.local_index[0].start < local_row + share)
        yield Chunk(offset, (share, *held), tuple(_moved_up(copy, local_row) for copy in mine))
        part_row += rows
        local_row += share


def extra_states(architecture: Architecture) -> Iterator[str]:
    """The keys of the extra states that the checkpoint of a whole model holds."""
    layers, experts = architecture.layers, architecture.experts
    for module in (*_WITH_EXTRA_STATE, *(() if experts else _DENSE_EXTRA_STATE)):
        for layer in range(layers):
            yield f"decoder.layers.{module}._extra_state/shard_{layer}_{layers}"
    count = experts.count if experts else 0
    for module in _EXPERT_EXTRA_STATE:
        for layer in range(layers):
            for expert in range(count):
                yield f"decoder.layers.{module}._extra_state/shard_{layer}.{expert}_{layers}.{count}"


def known_keys(architecture: Architecture) -> set[str]:
    """Every key under which a weight of the model may lie."""
    names = build_weight_map(architecture).parameters
    return {key for name in names for key in stored_as(name, architecture).keys}


def _moved_up(copy: Copy, rows: int) -> Copy:
    first, *rest = copy.local_index
    return Copy(copy.hf_name, copy.hf_index, (slice(first.start - rows, first.stop - rows), *rest))
