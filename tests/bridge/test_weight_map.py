"""The map against an independent construction of Megatron's layout, and its promises as properties."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from fake_gpt import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.architecture import FAMILIES, Architecture, Experts
from megatron_seirenes.bridge.layout import Parameter, Shard, local_shape, regions
from megatron_seirenes.bridge.weight_map import build_weight_map, global_name
from megatron_seirenes.errors import DataError, UsageError


@st.composite
def cut_models(draw: st.DrawFn) -> tuple[Architecture, int, int, int, int]:
    """An architecture, its padded vocabulary, and tensor, expert-tensor and expert parallel sizes that divide it."""
    tensor, expert_tensor, expert = (draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    family = draw(st.sampled_from(sorted(FAMILIES)))
    kv_heads = draw(st.sampled_from((1, 2, 3))) * draw(st.sampled_from((1, tensor)))
    head_dim = 4 * draw(st.integers(1, 2))
    experts = Experts(expert * draw(st.integers(1, 2)), 1, 4 * draw(st.integers(1, 3)), True)
    vocabulary = draw(st.integers(5, 40))
    architecture = tiny(
        family,
        tied=draw(st.booleans()),
        layers=draw(st.integers(1, 2)),
        hidden=draw(st.integers(3, 9)),
        ffn_size=4 * draw(st.integers(1, 4)),
        heads=kv_heads * draw(st.integers(1, 3)) * tensor,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        experts=experts if FAMILIES[family].moe else None,
    )
    padded = -(-vocabulary // tensor) * tensor + tensor * draw(st.integers(0, 2))
    return architecture, padded, tensor, expert_tensor, expert


def numbered(architecture: Architecture) -> dict[str, torch.Tensor]:
    """Every Hugging Face tensor, no number twice over all of them."""
    tensors, start = {}, 1
    for tensor in build_weight_map(architecture).tensors.values():
        size = torch.Size(tensor.shape).numel()
        tensors[tensor.name] = torch.arange(start, start + size).view(tensor.shape)
        start += size
    return tensors


def by_hand(hf: dict[str, torch.Tensor], architecture: Architecture, padded: int) -> dict[str, list[torch.Tensor]]:
    """Megatron's full parameters, written from its own code: a list of parts that are cut one by one."""
    groups, per_group, head = architecture.kv_heads, architecture.queries_per_group, architecture.head_dim

    def pad(rows: torch.Tensor) -> list[torch.Tensor]:
        return [torch.cat([rows, rows.new_zeros(padded - len(rows), rows.shape[1])])]

    def qkv(prefix: str, leaf: str) -> list[torch.Tensor]:
        query, key, value = (hf[f"{prefix}self_attn.{part}_proj.{leaf}"] for part in "qkv")
        tail = query.shape[1:]
        stacked = [
            query.view(groups, per_group * head, *tail),
            key.view(groups, head, *tail),
            value.view(groups, head, *tail),
        ]
        return [torch.cat(stacked, dim=1).reshape(-1, *tail)]

    full = {
        "embedding.word_embeddings.weight": pad(hf["model.embed_tokens.weight"]),
        "decoder.final_layernorm.weight": [hf["model.norm.weight"]],
        "output_layer.weight": pad(
            hf["model.embed_tokens.weight" if architecture.tied_embeddings else "lm_head.weight"]
        ),
    }
    for layer in range(architecture.layers):
        source, target = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        full[target + "self_attention.linear_qkv.weight"] = qkv(source, "weight")
        if architecture.family.qkv_bias:
            full[target + "self_attention.linear_qkv.bias"] = qkv(source, "bias")
        if architecture.family.qk_norm:
            full[target + "self_attention.q_layernorm.weight"] = [hf[source + "self_attn.q_norm.weight"]]
            full[target + "self_attention.k_layernorm.weight"] = [hf[source + "self_attn.k_norm.weight"]]
        full[target + "self_attention.linear_proj.weight"] = [hf[source + "self_attn.o_proj.weight"]]
        full[target + "input_layernorm.weight"] = [hf[source + "input_layernorm.weight"]]
        full[target + "pre_mlp_layernorm.weight"] = [hf[source + "post_attention_layernorm.weight"]]
        mlps = {"mlp.": "mlp."}
        if architecture.experts:
            full[target + "mlp.router.weight"] = [hf[source + "mlp.gate.weight"]]
            numbers = range(architecture.experts.count)
            mlps = {f"mlp.experts.{e}.": f"mlp.experts.local_experts.{e}." for e in numbers}
        for theirs, ours in mlps.items():
            gate_up = [hf[f"{source}{theirs}{part}_proj.weight"] for part in ("gate", "up")]
            full[f"{target}{ours}linear_fc1.weight"] = gate_up
            full[f"{target}{ours}linear_fc2.weight"] = [hf[f"{source}{theirs}down_proj.weight"]]
    return full


def cut_by_hand(name: str, parts: list[torch.Tensor], shard: Shard) -> torch.Tensor:
    rank, size = shard.tensor_rank, shard.tensor_size
    if "local_experts" in name:
        rank, size = shard.expert_tensor_rank, shard.expert_tensor_size
    if any(word in name for word in ("linear_fc1", "linear_qkv", "word_embeddings", "output_layer")):
        return torch.cat([part.chunk(size)[rank] for part in parts])
    if "linear_fc2" in name or "linear_proj" in name:
        return parts[0].chunk(size, dim=1)[rank]
    return parts[0]


def cells(parameter: Parameter, tensor: int, expert_tensor: int) -> list[Shard]:
    """One shard for every different piece of the parameter."""
    sizes = {"tensor": tensor, "expert_tensor": expert_tensor, None: 1}
    return [
        Shard(
            tensor_rank=rank if parameter.group == "tensor" else 0,
            tensor_size=tensor,
            expert_tensor_rank=rank if parameter.group == "expert_tensor" else 0,
            expert_tensor_size=expert_tensor,
        )
        for rank in range(sizes[parameter.group])
    ]


@settings(max_examples=40, deadline=None)
@given(cut_models())
def test_shards_tile_every_tensor_once_and_equal_megatrons_layout(case: tuple) -> None:
    architecture, padded, tensor, expert_tensor, expert = case
    weight_map = build_weight_map(architecture, padded)
    hf = numbered(architecture)
    expected = by_hand(hf, architecture, padded)
    assert set(expected) == set(weight_map.parameters)
    seen = {name: torch.zeros_like(value) for name, value in hf.items()}
    for name, parameter in weight_map.parameters.items():
        for shard in cells(parameter, tensor, expert_tensor):
            local = torch.zeros(local_shape(parameter, shard), dtype=torch.int64)
            for copy in regions(parameter, shard):
                assert not local[copy.local_index].any(), "two copies write the same place"
                local[copy.local_index] = hf[copy.hf_name][copy.hf_index]
                if not parameter.replica:
                    seen[copy.hf_name][copy.hf_index] += 1
            assert torch.equal(local, cut_by_hand(name, expected[name], shard)), name
    assert all(torch.equal(count, torch.ones_like(count)) for count in seen.values())
    if architecture.experts:
        owners = [
            Shard(expert_rank=rank, expert_size=expert).experts(architecture.experts.count) for rank in range(expert)
        ]
        assert list(itertools.chain(*owners)) == list(range(architecture.experts.count))


def test_qkv_rows_stand_group_by_group() -> None:
    """By hand for two groups of two queries, head size 1: [q0 q1 k0 v0 | q2 q3 k1 v1]."""
    architecture = tiny("qwen2", heads=4, kv_heads=2, head_dim=1)
    bias = build_weight_map(architecture).parameters["decoder.layers.1.self_attention.linear_qkv.bias"]
    rows = [
        (copy.hf_name.split(".")[-2][0], row)
        for copy in regions(bias, Shard())
        for row in range(copy.hf_index[0].start, copy.hf_index[0].stop)
    ]
    assert rows == [("q", 0), ("q", 1), ("k", 0), ("v", 0), ("q", 2), ("q", 3), ("k", 1), ("v", 1)]


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ("decoder.layers.0.input_layernorm.weight", "decoder.layers.5.input_layernorm.weight"),
        ("decoder.layers.1.self_attention.linear_qkv.layer_norm_weight", "decoder.layers.9.input_layernorm.weight"),
        ("decoder.layers.1.mlp.linear_fc1.layer_norm_weight", "decoder.layers.9.pre_mlp_layernorm.weight"),
        ("decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.5.mlp.linear_fc1.weight"),
        (
            "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1.weight",
            "decoder.layers.9.mlp.experts.local_experts.19.linear_fc1.weight",
        ),
        (
            "decoder.layers.1.mlp.experts.linear_fc2.weight12",
            "decoder.layers.9.mlp.experts.local_experts.28.linear_fc2.weight",
        ),
        ("output_layer.weight", "output_layer.weight"),
    ],
)
def test_names_of_both_layer_specs(live: str, expected: str) -> None:
    assert global_name(live, layers=[5, 9], first_expert=16) == expected


@pytest.mark.parametrize(
    "live",
    [
        "decoder.layers.0.mlp.experts.weight1",
        "decoder.layers.0.mlp.experts.linear_fc1.weight",
        "decoder.layers.0.mlp.experts.linear_fc1.bias0",
        "decoder.layers.0.mlp.shared_experts.linear_fc1.weight",
        "decoder.layers.0.self_attention.linear_proj.bias",
        "decoder.layers.0.mlp.linear_fc1.weight0",
        "embedding.position_embeddings.weight",
        "module.output_layer.weight",
    ],
)
def test_unknown_names_are_refused_by_name(live: str) -> None:
    with pytest.raises(DataError, match=live):
        global_name(live, layers=[0], first_expert=0)


def test_published_tensors_of_each_family() -> None:
    dense = build_weight_map(tiny("qwen3")).tensors
    assert dense["model.layers.1.self_attn.o_proj.weight"].shape == (16, 32)
    assert dense["model.layers.0.self_attn.q_norm.weight"].kind == "norm"
    assert "lm_head.weight" in dense
    assert "lm_head.weight" not in build_weight_map(tiny("llama", tied=True)).tensors
    assert build_weight_map(tiny("qwen2")).tensors["model.layers.0.self_attn.k_proj.bias"].shape == (16,)
    moe = build_weight_map(tiny("qwen3_moe")).tensors
    assert moe["model.layers.1.mlp.experts.3.down_proj.weight"].shape == (16, 12)
    assert moe["model.layers.1.mlp.gate.weight"].shape == (4, 16)
    assert "model.layers.0.mlp.gate_proj.weight" not in moe


def test_sizes_that_do_not_fit_are_refused() -> None:
    architecture = tiny("qwen3")
    projection = build_weight_map(architecture).parameters["decoder.layers.0.mlp.linear_fc2.weight"]
    with pytest.raises(UsageError, match=r"linear_fc2\.weight: 24 cannot be cut into 5"):
        regions(projection, Shard(tensor_size=5))
    with pytest.raises(DataError, match="49 rows, the checkpoint has 50"):
        build_weight_map(architecture, padded_vocabulary=49)
    with pytest.raises(UsageError, match="experts: 4 cannot be cut into 3"):
        Shard(expert_size=3).experts(4)


def test_map_is_built_once_an_architecture() -> None:
    architecture = tiny("qwen3")
    assert build_weight_map(architecture, 64) is build_weight_map(replace(architecture), 64)
