"""One engine over two ranks, against Hugging Face, as started and after an update."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchrun import launch

pytest.importorskip("vllm")

PROGRAM = Path(__file__).with_name("tensor_parallel_program.py")


@pytest.mark.slow
def test_two_ranks_draw_the_same_tokens_with_the_log_probabilities_of_hugging_face(tmp_path):
    launch(PROGRAM, 2, tmp_path)
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert set(seen) == {"tied as started", "tied updated", "moe as started", "moe updated"}
    assert all(entry["worst"] <= 1e-4 for entry in seen.values()), seen
    assert all(entry["same_on_all_ranks"] for entry in seen.values()), seen
