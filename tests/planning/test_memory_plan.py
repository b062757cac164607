"""Sizes against published counts, and memory against the sums that the cluster configurations write out."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.bridge.weight_map import build_weight_map
from megatron_seirenes.config.loading import load_config
from megatron_seirenes.planning.memory import Layout, cache_tokens, memory_of
from megatron_seirenes.planning.shapes import SHAPES, active_parameters, find_shape, parameters

YAML_CONFIGS = Path(__file__).resolve().parents[2] / "yaml_configs"
PROCESSES = {"qwen2.5-7b": 8, "qwen3-4b": 8, "qwen3-30b-a3b": 16}


@pytest.mark.parametrize("model", SHAPES)
def test_parameters_are_those_of_the_checkpoint(model: str) -> None:
    architecture = find_shape(model)
    tensors = build_weight_map(architecture).tensors.values()
    assert parameters(architecture) == sum(math.prod(tensor.shape) for tensor in tensors)


def test_a_token_meets_its_chosen_experts_only() -> None:
    assert 3.0e9 < active_parameters(find_shape("qwen3-30b-a3b")) < 3.4e9


@pytest.mark.parametrize("model", PROCESSES)
def test_memory_is_what_the_cluster_configuration_says(model: str) -> None:
    """Two hand calculations: the comment of each file and this room."""
    file = YAML_CONFIGS / f"{model.replace('-', '_')}.yaml"
    stated = float(re.search(r"sum\s+([\d.]+) of 80", file.read_text(encoding="utf-8")).group(1))
    config, world = load_config(file, []), PROCESSES[model]
    layout = Layout(
        TrainingLayout.of(config.parallel, world),
        EngineLayout(world, config.rollout.tensor),
        micro_batch_tokens=config.actor.micro_batch_tokens,
        recompute=config.actor.recompute,
    )
    memory = memory_of(find_shape(model), layout, 80e9, kv_bytes=config.rollout.kv_cache_bytes)
    assert memory.total / 1e9 == pytest.approx(stated, abs=0.4)
    full = config.rollout.max_prompt_tokens + 16_384
    assert cache_tokens(find_shape(model), layout.engine, memory.kv_cache) > 5 * full


def test_more_tensor_parallelism_takes_less() -> None:
    architecture = find_shape("qwen3-30b-a3b")
    totals = [
        memory_of(architecture, Layout(TrainingLayout(64, tensor, expert=8), EngineLayout(64, 8)), 80e9, 0).total
        for tensor in (1, 2, 4)
    ]
    assert totals == sorted(totals, reverse=True)


def test_the_cache_gets_what_is_left() -> None:
    architecture = find_shape("qwen3-4b")
    layout = Layout(TrainingLayout(8), EngineLayout(8))
    assert memory_of(architecture, layout, 80e9).total == pytest.approx(0.95 * 80e9)
    assert memory_of(architecture, layout, 20e9).kv_cache == 0
