"""The cluster configurations against the published shapes of their models, and their processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.config.rules import training_faults

YAML_CONFIGS = Path(__file__).resolve().parents[2] / "yaml_configs"
QWEN3 = {"head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 262_144, "num_attention_heads": 32}
SHAPES = {
    "qwen2.5_7b": {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "max_position_embeddings": 32_768,
    },
    "qwen3_4b": {
        **QWEN3,
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 2_560,
        "intermediate_size": 9_728,
        "num_key_value_heads": 8,
        "tie_word_embeddings": True,
    },
    "qwen3_30b_a3b": {
        **QWEN3,
        "model_type": "qwen3_moe",
        "num_hidden_layers": 48,
        "hidden_size": 2_048,
        "intermediate_size": 6_144,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
}


@pytest.mark.parametrize(("name", "processes"), [("qwen2.5_7b", 8), ("qwen3_4b", 8), ("qwen3_30b_a3b", 16)])
def test_each_fits_its_model_and_its_gpus(tmp_path: Path, name: str, processes: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[name]))
    config = load_config(YAML_CONFIGS / f"{name}.yaml", [f"model.path={tmp_path}"])
    assert training_faults(config, cuda=True, world_size=processes) == []


def test_the_paper_s_responses_do_not_fit_a_shorter_context(tmp_path: Path) -> None:
    """The check above is about these shapes: with half the context the 7B file is refused."""
    shape = {**SHAPES["qwen2.5_7b"], "max_position_embeddings": 16_384}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    with pytest.raises(Exception, match="longer than the model's context of 16384"):
        load_config(YAML_CONFIGS / "qwen2.5_7b.yaml", [f"model.path={tmp_path}"])
