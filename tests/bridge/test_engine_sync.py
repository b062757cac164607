"""The planned sync into real vLLM engines on two ranks: 20 pairs of a Megatron layout and an engine's.

What the engine was given is, bit for bit, what the folder holds; the engine's log-probabilities are Hugging Face's; no
more than two buckets were under way; and a wrong tensor of one rank is found on both.
`-s` prints the table of docs/bridge.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchrun import launch

PROGRAM = Path(__file__).with_name("engine_sync_program.py")
"""It writes what each rank saw of its engines, one dict an engine."""
TENSOR = {"tensor": 2, "sequence_parallel": True}
ALL, MOE = ["tied", "untied", "moe"], ["moe"]
LAYOUTS = {
    "data 2": {"parallel": {}, "kinds": ["untied", "moe"]},
    "tensor 2": {"parallel": TENSOR, "kinds": ALL},
    "pipeline 2": {"parallel": {"pipeline": 2}, "kinds": ALL},
    "expert 2": {"parallel": {"expert": 2}, "kinds": MOE},
    "tensor 2 x expert 2": {"parallel": TENSOR | {"expert": 2, "expert_tensor": 1}, "kinds": MOE},
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_engine_says_what_hugging_face_says_of_the_synced_weights(layout: str, tmp_path: Path) -> None:
    launch(PROGRAM, 2, tmp_path, json.dumps(LAYOUTS[layout]), path=(PROGRAM.parents[1] / "rollouts",))
    ranks = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    for one in (one for rank in ranks for one in rank):
        assert one["wrong"] == [], one
        assert one["worst"] < 1e-4, one
        assert one["old"] > 1e-2, "the old weights would have passed, too"
        assert one["buffers"] <= 2, one
        assert "was given is not what" in one["fault"] and "o_proj.weight (observe" in one["fault"], one
    for pair in zip(*ranks, strict=True):
        assert sum(one["received"] for one in pair) == pair[0]["planned"], "more or less travelled than planned"
        worst, buffers = (max(one[key] for one in pair) for key in ("worst", "buffers"))
        first = pair[0]
        cells = (first["kind"], layout, first["tensor"], f"{first['planned']:,}", first["buckets"], f"{buffers:.2f}")
        print(f"\n| {' | '.join(map(str, cells))} | {worst:.0e} |", end="")
