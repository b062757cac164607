"""Module trees with the names, shapes and layer numbers of Megatron's GPTModel chunks, and nothing that computes."""

from __future__ import annotations

from dataclasses import replace

import torch

from megatron_seirenes.architecture import FAMILIES, Architecture, Experts
from megatron_seirenes.bridge.layout import Shard, local_shape
from megatron_seirenes.bridge.weight_map import build_weight_map

TRANSFORMER_ENGINE_NAMES = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
}


def tiny(family: str, tied: bool = False, **changes: object) -> Architecture:
    experts = Experts(count=4, per_token=2, ffn_size=12, normalize_weights=True) if FAMILIES[family].moe else None
    base = Architecture(
        family=FAMILIES[family],
        layers=2,
        hidden=16,
        ffn_size=24,
        heads=4,
        kv_heads=2,
        head_dim=8,
        vocabulary=50,
        max_positions=64,
        norm_epsilon=1e-6,
        rope_theta=10_000.0,
        tied_embeddings=tied,
        experts=experts,
    )
    return replace(base, **changes)


class FakeGPT(torch.nn.Module):
    """One chunk with the global `layers`, as the rank `shard` holds it, named as either layer spec does."""

    def __init__(
        self,
        architecture: Architecture,
        layers: range,
        shard: Shard | None = None,
        padded_vocabulary: int | None = None,
        first: bool = True,
        last: bool = True,
        transformer_engine: bool = False,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        shard = shard or Shard()
        self.vocab_size = padded_vocabulary or architecture.vocabulary
        self.pre_process, self.post_process = first, last
        weight_map = build_weight_map(architecture, self.vocab_size)
        experts = shard.experts(architecture.experts.count) if architecture.experts else range(0)
        self.decoder = torch.nn.Module()
        self.decoder.layers = torch.nn.ModuleList(torch.nn.Module() for _ in layers)
        for module, layer in zip(self.decoder.layers, layers, strict=True):
            module.layer_number = layer + 1
        for name in weight_map.expected(layers, experts, first, last):
            shape = local_shape(weight_map.parameters[name], shard)
            live = _live_name(name, layers.start, experts.start, transformer_engine, architecture.family.moe)
            place_parameter(self, live, torch.full(shape, float("nan"), dtype=dtype))


def place_parameter(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Registers a parameter under a dotted name, making the modules on the way."""
    *path, leaf = name.split(".")
    for part in path:
        if part not in module._modules:
            module.add_module(part, torch.nn.Module())
        module = module._modules[part]
    module.register_parameter(leaf, torch.nn.Parameter(value))


def _live_name(name: str, first_layer: int, first_expert: int, transformer_engine: bool, moe: bool) -> str:
    if not name.startswith("decoder.layers."):
        return name
    layer, suffix = name.removeprefix("decoder.layers.").split(".", 1)
    if suffix.startswith("mlp.experts.local_experts."):
        expert, leaf = suffix.removeprefix("mlp.experts.local_experts.").split(".", 1)
        local = int(expert) - first_expert
        grouped = f"mlp.experts.{leaf}{local}"
        suffix = grouped if transformer_engine else f"mlp.experts.local_experts.{local}.{leaf}"
    elif transformer_engine and not (moe and suffix == "pre_mlp_layernorm.weight"):
        suffix = TRANSFORMER_ENGINE_NAMES.get(suffix, suffix)
    return f"decoder.layers.{int(layer) - first_layer}.{suffix}"
