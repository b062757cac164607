"""Weights into module trees and out again, in both layer specs, over stages, shards and damaged models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fake_gpt import FakeGPT, place_parameter, tiny
from safetensors.torch import save_file

from megatron_seirenes.architecture import FAMILIES, Architecture
from megatron_seirenes.bridge import gather, load
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.bridge.layout import Shard, regions
from megatron_seirenes.bridge.load import load_hf_folder
from megatron_seirenes.bridge.weight_map import build_weight_map
from megatron_seirenes.errors import DataError

MODELS = [(family, tied) for family in FAMILIES for tied in (False, True)]


def random_weights(architecture: Architecture) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    tensors = build_weight_map(architecture).tensors.values()
    return {tensor.name: torch.randn(tensor.shape, generator=generator) for tensor in tensors}


def folder_of(weights: dict[str, torch.Tensor], path: Path) -> Path:
    save_file(weights, path / "model.safetensors")
    return path


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch):
    """Makes load and gather believe that this process is another rank."""

    def become(shard: Shard) -> None:
        monkeypatch.setattr(load, "this_rank", lambda: shard)
        monkeypatch.setattr(gather, "this_rank", lambda: shard)

    return become


@pytest.mark.parametrize("transformer_engine", [False, True])
@pytest.mark.parametrize(("family", "tied"), MODELS)
def test_what_is_loaded_comes_out_again(family: str, tied: bool, transformer_engine: bool, tmp_path: Path) -> None:
    architecture = tiny(family, tied)
    weights = random_weights(architecture)
    model = FakeGPT(architecture, range(2), padded_vocabulary=64, transformer_engine=transformer_engine)
    load_hf_folder([model], architecture, folder_of(weights, tmp_path))
    out = dict(hf_tensors([model], architecture))
    assert list(out) == list(build_weight_map(architecture).tensors)
    assert ("lm_head.weight" in out) == (not tied)
    assert all(torch.equal(out[name], value) for name, value in weights.items())
    embedding = model.embedding.word_embeddings.weight
    assert not embedding[50:].any()
    assert not any(parameter.isnan().any() for parameter in model.parameters())


def test_whole_regions_are_views_of_the_live_weights(tmp_path: Path) -> None:
    architecture = tiny("qwen3_moe")
    model = FakeGPT(architecture, range(2), padded_vocabulary=64)
    load_hf_folder([model], architecture, folder_of(random_weights(architecture), tmp_path))
    storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    copied = {
        name.split(".")[-2]
        for name, tensor in hf_tensors([model], architecture)
        if tensor.untyped_storage().data_ptr() not in storages
    }
    assert copied == {"q_proj", "k_proj", "v_proj"}
    assert all(not tensor.requires_grad for _, tensor in hf_tensors([model], architecture))


def test_dtypes_follow_the_parameter_in_and_the_caller_out(tmp_path: Path) -> None:
    architecture = tiny("qwen2")
    weights = random_weights(architecture)
    model = FakeGPT(architecture, range(2), dtype=torch.bfloat16)
    load_hf_folder([model], architecture, folder_of(weights, tmp_path))
    for name, tensor in hf_tensors([model], architecture, dtype=torch.float32):
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, weights[name].bfloat16().float())
    assert {tensor.dtype for _, tensor in hf_tensors([model], architecture)} == {torch.bfloat16}


def test_pipeline_chunks_hold_their_layers_and_a_tied_head(tmp_path: Path) -> None:
    architecture = tiny("qwen3", tied=True, layers=4)
    weights = random_weights(architecture)
    folder = folder_of(weights, tmp_path)
    last_stage = [
        FakeGPT(architecture, range(1, 2), padded_vocabulary=52, first=False, last=False),
        FakeGPT(architecture, range(3, 4), padded_vocabulary=52, first=False, last=True),
    ]
    load_hf_folder(last_stage, architecture, folder)
    for chunk, layer in zip(last_stage, (1, 3), strict=True):
        live = chunk.decoder.layers[0].mlp.linear_fc2.weight
        assert torch.equal(live, weights[f"model.layers.{layer}.mlp.down_proj.weight"])
    assert torch.equal(last_stage[1].output_layer.weight[:50], weights["model.embed_tokens.weight"])
    with pytest.raises(DataError, match=r"embed_tokens\.weight: the ranks hold 0 of its"):
        hf_tensors(last_stage, architecture)


def test_a_rank_fills_its_own_shard_and_does_not_take_it_for_the_whole(tmp_path: Path, as_rank) -> None:
    architecture = tiny("qwen3_moe")
    weights = random_weights(architecture)
    folder = folder_of(weights, tmp_path)
    shard = Shard(tensor_rank=1, tensor_size=2, expert_rank=1, expert_size=2)
    as_rank(shard)
    model = FakeGPT(architecture, range(2), shard, padded_vocabulary=64)
    load_hf_folder([model], architecture, folder)
    # Rank 1 of two holds query group 1: q rows 16-31, k and v rows 8-15; experts 2 and 3 whole.
    prefix = "model.layers.0.self_attn."
    q, k, v = (weights[f"{prefix}{part}_proj.weight"] for part in "qkv")
    layer = model.decoder.layers[0]
    assert torch.equal(layer.self_attention.linear_qkv.weight, torch.cat([q[16:], k[8:], v[8:]]))
    gate, up = (weights[f"model.layers.0.mlp.experts.2.{part}_proj.weight"] for part in ("gate", "up"))
    assert torch.equal(layer.mlp.experts.local_experts._modules["0"].linear_fc1.weight, torch.cat([gate, up]))
    padded = torch.cat([weights["lm_head.weight"], torch.zeros(14, 16)])
    assert torch.equal(model.output_layer.weight, padded[32:])
    with pytest.raises(DataError, match="not those of one whole model"):
        hf_tensors([model], architecture)


def test_only_the_rows_of_the_rank_are_read(tmp_path: Path, as_rank, monkeypatch: pytest.MonkeyPatch) -> None:
    architecture = tiny("qwen3")
    folder = folder_of(random_weights(architecture), tmp_path)
    shard = Shard(tensor_rank=0, tensor_size=2)
    as_rank(shard)
    read: list[int] = []
    original = load.HfFolder.read

    def counting(self, name, index):
        tensor = original(self, name, index)
        read.append(tensor.numel())
        return tensor

    monkeypatch.setattr(load.HfFolder, "read", counting)
    model = FakeGPT(architecture, range(2), shard)
    load_hf_folder([model], architecture, folder)
    assert sum(read) == sum(parameter.numel() for parameter in model.parameters())


def test_models_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    architecture = tiny("qwen3")
    folder = folder_of(random_weights(architecture), tmp_path)

    def refused(model: FakeGPT, message: str) -> None:
        with pytest.raises(DataError, match=message):
            load_hf_folder([model], architecture, folder)

    model = FakeGPT(architecture, range(2))
    place_parameter(model, "decoder.layers.0.mlp.shared_experts.linear_fc1.weight", torch.ones(1))
    refused(model, r"shared_experts\.linear_fc1\.weight' is not in the weight map")
    model = FakeGPT(architecture, range(2))
    place_parameter(model, "decoder.layers.0.mlp.router.weight", torch.ones(1))
    refused(model, r"router\.weight' does not belong to this qwen3 architecture")
    model = FakeGPT(architecture, range(2))
    del model.decoder.layers[1].self_attention.q_layernorm.weight
    refused(model, r"lacks 1 of .*decoder\.layers\.1\.self_attention\.q_layernorm\.weight")
    model = FakeGPT(architecture, range(2))
    place_parameter(model, "output_layer.weight", torch.ones(50, 8))
    refused(model, r"output_layer\.weight' has shape \(50, 8\); the architecture gives \(50, 16\)")
    model = FakeGPT(architecture, range(2))
    model.decoder.layers[1].layer_number = 1
    refused(model, "is held twice")


def test_a_folder_that_does_not_fit_writes_nothing(tmp_path: Path) -> None:
    architecture = tiny("qwen3")
    weights = random_weights(architecture)
    del weights["model.norm.weight"]
    model = FakeGPT(architecture, range(2))
    with pytest.raises(DataError, match=r"missing: model\.norm\.weight"):
        load_hf_folder([model], architecture, folder_of(weights, tmp_path))
    assert all(parameter.isnan().all() for parameter in model.parameters())


def test_a_tied_checkpoint_may_repeat_its_head_but_not_contradict_it(tmp_path: Path) -> None:
    architecture = tiny("qwen3", tied=True)
    weights = random_weights(architecture)
    head = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    model = FakeGPT(architecture, range(2))
    load_hf_folder([model], architecture, folder_of(weights | head, tmp_path))
    head["lm_head.weight"][-1, -1] += 1
    with pytest.raises(DataError, match=r"ties the embeddings, but lm_head\.weight differs"):
        load_hf_folder([model], architecture, folder_of(weights | head, tmp_path))


def test_regions_name_every_element_of_a_whole_parameter() -> None:
    parameter = build_weight_map(tiny("qwen3"), 64).parameters["output_layer.weight"]
    (copy,) = regions(parameter, Shard())
    assert copy.local_index == (slice(0, 50), slice(0, 16))
