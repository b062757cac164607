"""The parameters of this process, each bound to its entry of the weight map: what load and gather both start from.

Refused: a parameter the map does not know, one of another shape than the map says, one that occurs twice, and one that
the map expects here and no module holds (a model built without its q/k norms must not silently lose them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from megatron.core import parallel_state

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy, Parameter, Shard, local_shape, regions
from megatron_seirenes.bridge.weight_map import WeightMap, build_weight_map, global_name
from megatron_seirenes.errors import DataError


@dataclass(frozen=True, slots=True)
class BoundParameter:
    """One live parameter: `tensor` is its detached data, `copies` say which Hugging Face regions it holds."""

    parameter: Parameter
    tensor: torch.Tensor
    copies: tuple[Copy, ...]


def this_rank() -> Shard:
    """The shard this rank holds by Megatron's groups; the whole model where no groups were made."""
    if not parallel_state.model_parallel_is_initialized():
        return Shard()
    return Shard(
        tensor_rank=parallel_state.get_tensor_model_parallel_rank(),
        tensor_size=parallel_state.get_tensor_model_parallel_world_size(),
        expert_tensor_rank=parallel_state.get_expert_tensor_parallel_rank(),
        expert_tensor_size=parallel_state.get_expert_tensor_parallel_world_size(),
        expert_rank=parallel_state.get_expert_model_parallel_rank(),
        expert_size=parallel_state.get_expert_model_parallel_world_size(),
    )


def bind(
    modules: Sequence[torch.nn.Module], architecture: Architecture, shard: Shard
) -> tuple[WeightMap, tuple[BoundParameter, ...]]:
    """The weight map and every parameter of `modules` (this rank's GPTModel chunks) with its place in it.

    Raises DataError for parameters that do not fit the map, UsageError for sizes that do not divide.
    """
    weight_map = build_weight_map(architecture, _padded_vocabulary(modules))
    experts = shard.experts(architecture.experts.count) if architecture.experts else range(0)
    bound: dict[str, BoundParameter] = {}
    for module in modules:
        layers = _layer_numbers(module)
        for live_name, live in module.named_parameters():
            name = global_name(live_name, layers, experts.start)
            if name in bound:
                raise DataError(f"Megatron parameter {name!r} is held twice by the modules of this rank")
            bound[name] = _bind_one(weight_map, name, live, shard)
    _check_complete(weight_map, modules, experts, bound)
    return weight_map, tuple(bound.values())


def _bind_one(weight_map: WeightMap, name: str, live: torch.Tensor, shard: Shard) -> BoundParameter:
    parameter = weight_map.parameters.get(name)
    if parameter is None:
        family = weight_map.architecture.family.model_type
        raise DataError(f"Megatron parameter {name!r} does not belong to this {family} architecture")
    expected = local_shape(parameter, shard)
    if tuple(live.shape) != expected:
        raise DataError(f"Megatron parameter {name!r} has shape {tuple(live.shape)}; the architecture gives {expected}")
    return BoundParameter(parameter, live.detach(), regions(parameter, shard))


def _padded_vocabulary(modules: Sequence[torch.nn.Module]) -> int:
    sizes = {int(module.vocab_size) for module in modules}  # type: ignore[arg-type]
    if len(sizes) != 1:
        raise DataError(f"the modules of one rank must agree on vocab_size; seen: {sorted(sizes)}")
    return sizes.pop()


def _layer_numbers(module: torch.nn.Module) -> list[int]:
    """Global layer numbers from 0; Megatron counts `layer_number` from 1 over all stages and chunks."""
    return [layer.layer_number - 1 for layer in module.decoder.layers]  # type: ignore[union-attr]


def _check_complete(
    weight_map: WeightMap, modules: Sequence[torch.nn.Module], experts: range, bound: dict[str, BoundParameter]
) -> None:
    layers = [layer for module in modules for layer in _layer_numbers(module)]
    first = any(module.pre_process for module in modules)
    last = any(module.post_process for module in modules)
    absent = [name for name in weight_map.expected(layers, experts, first, last) if name not in bound]
    if absent:
        raise DataError(
            f"the Megatron model lacks {len(absent)} of the parameters the architecture needs: {', '.join(absent[:5])}"
        )
