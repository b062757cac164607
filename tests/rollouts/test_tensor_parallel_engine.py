"""One engine over two ranks, against Hugging Face, as started and after an update."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")

PROGRAM = Path(__file__).with_name("tensor_parallel_program.py")


@pytest.mark.slow
def test_two_ranks_draw_the_same_tokens_with_the_log_probabilities_of_hugging_face(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join([str(PROGRAM.parent), str(PROGRAM.parents[2])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    ran = subprocess.run(
        [*launcher, str(PROGRAM), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert set(seen) == {"tied as started", "tied updated", "moe as started", "moe updated"}
    assert all(entry["worst"] <= 1e-4 for entry in seen.values()), seen
    assert all(entry["same_on_all_ranks"] for entry in seen.values()), seen
