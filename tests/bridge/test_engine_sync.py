"""The planned sync into real vLLM engines on two ranks: 20 pairs of a Megatron layout and an engine's.

What the engine was given is, bit for bit, what the folder holds; the engine's log-probabilities are Hugging Face's; no
more than two buckets were under way; and a wrong tensor of one rank is found on both.
`-s` prints the table of docs/bridge.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
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
    ranks = launched(tmp_path, LAYOUTS[layout])
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


def launched(folder: Path, case: dict) -> list[list[dict]]:
    """What each rank saw of its engines, one dict an engine."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE, ROOT / "tests" / "rollouts"))),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, HERE / "engine_sync_program.py", folder, json.dumps(case)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "seen.json").read_text(encoding="utf-8"))
