"""What a sync costs in memory beside the model, as Linux counts it: within two buckets, tensors put together included.

`-s` prints the table of docs/bridge.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchrun import launch
from transformers import AutoConfig, AutoModelForCausalLM

PROGRAM = Path(__file__).with_name("sync_memory_program.py")
MIB = 2**20
BUCKET = 24 * MIB
SLACK = MIB // 8
"""Python's objects: lists of moves, messages."""
SHAPE = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
MODELS = {
    "qwen3": {"intermediate_size": 2048},
    "qwen3_moe": {"intermediate_size": 512, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512},
}
TENSOR = {"tensor": 2, "sequence_parallel": True}
LAYOUTS = {
    "dense, tensor 2 to tensor 1": ("qwen3", TENSOR, 1),
    "dense, pipeline 2 to tensor 1": ("qwen3", {"pipeline": 2}, 1),
    "dense, pipeline 2 to tensor 2": ("qwen3", {"pipeline": 2}, 2),
    "experts, expert 2 to tensor 1": ("qwen3_moe", {"expert": 2}, 1),
    "experts, expert 2 to tensor 2": ("qwen3_moe", {"expert": 2}, 2),
    "experts, tensor 2 and expert 2 to tensor 1": ("qwen3_moe", TENSOR | {"expert": 2, "expert_tensor": 1}, 1),
}


@pytest.mark.slow
def test_a_sync_needs_no_more_memory_than_two_buckets(tmp_path: Path) -> None:
    for name, shape in MODELS.items():
        AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **SHAPE | shape)).save_pretrained(tmp_path / name)
    cases = {
        name: {
            "model": model,
            "parallel": parallel,
            "rollout": {"tensor": tensor, "sync_bucket_bytes": BUCKET},
        }
        for name, (model, parallel, tensor) in LAYOUTS.items()
    }
    (tmp_path / "layouts.json").write_text(json.dumps(cases), encoding="utf-8")
    # Freed buffers go back at once, instead of into glibc's own pool.
    launch(PROGRAM, 2, tmp_path, tmp_path / "layouts.json", MALLOC_MMAP_THRESHOLD_="65536")
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    for name, one in seen.items():
        cells = (name, f"{one['held'] / 1e6:.0f}", f"{one['received'] / 1e6:.0f}", one["buckets"])
        print(f"\n| {' | '.join(map(str, cells))} | {one['extra'] / MIB:.1f} |", end="")
    for name, one in seen.items():
        assert one["buckets"] > 2, f"{name}: nothing is shown where all of it fits into two buckets"
        assert one["extra"] <= 2 * BUCKET + SLACK, (name, one)
