"""Plans executed: four ranks of real Megatron modules under gloo, every layout in one launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from fake_gpt import FakeGPT, tiny
from torchrun import launch
from transformers import AutoConfig, AutoModelForCausalLM

from megatron_seirenes.bridge.megatron_writer import write_megatron_checkpoint
from megatron_seirenes.bridge.plan import plan_sync
from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.bridge.transport import Transport
from megatron_seirenes.errors import UsageError

PROGRAM = Path(__file__).with_name("transport_program.py")
SHAPE = {
    "vocab_size": 98,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}


def save_models(root: Path) -> None:
    torch.manual_seed(3)
    for family, tied in (("qwen3", True), ("qwen2", False), ("qwen3_moe", False)):
        more = (EXPERTS if family == "qwen3_moe" else {}) | ({} if family == "qwen2" else {"head_dim": 16})
        config = AutoConfig.for_model(family, **SHAPE | more, tie_word_embeddings=tied)
        model = AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        model.save_pretrained(root / family)
        written_by = TrainingLayout(2, tensor=2, expert_tensor=2)
        write_megatron_checkpoint(root / family, root / f"{family}-megatron", written_by)


def test_every_layout_reaches_every_engine_and_bytes_are_those_planned(tmp_path: Path) -> None:
    save_models(tmp_path)
    launch(PROGRAM, 4, tmp_path)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert len(seen) >= 12
    assert all(pair["total"] == pair["bound"] for pair in seen)
    assert sum(pair["total"] > 0 for pair in seen) >= 12, "most pairs have something to send"
    assert any(pair["buckets"] > 10 for pair in seen)


def test_one_rank_gets_views_of_what_lies_whole() -> None:
    architecture = tiny("qwen3")
    model = FakeGPT(architecture, range(2))
    plan = plan_sync(architecture, TrainingLayout(1), EngineLayout(1), itemsize=4)
    tensors = dict(Transport([model], architecture, plan).tensors())
    assert tensors["model.norm.weight"].data_ptr() == model.decoder.final_layernorm.weight.data_ptr()
    gate = tensors["model.layers.1.mlp.gate_proj.weight"]
    assert gate.data_ptr() == model.decoder.layers[1].mlp.linear_fc1.weight.data_ptr()
    assert plan.total == 0


def test_a_plan_for_others_is_refused() -> None:
    architecture = tiny("qwen3")
    model = FakeGPT(architecture, range(2))
    with pytest.raises(UsageError, match="the plan is for 2 ranks, and 1 run"):
        Transport([model], architecture, plan_sync(architecture, TrainingLayout(2), EngineLayout(2), itemsize=4))
    with pytest.raises(UsageError, match="numbers of 2 bytes"):
        Transport([model], architecture, plan_sync(architecture, TrainingLayout(1), EngineLayout(1), itemsize=2))
