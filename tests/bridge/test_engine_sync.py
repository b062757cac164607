"""The planned sync into a real vLLM engine on two ranks: dense with tied embeddings, and a mixture of experts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.mark.slow
def test_the_engine_says_what_hugging_face_says_of_the_synced_weights(tmp_path: Path) -> None:
    places = (ROOT, HERE, ROOT / "tests" / "rollouts")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, HERE / "engine_sync_program.py", tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert len(seen) == 6 and all(one["wrong"] == [] for one in seen)
    assert max(one["worst"] for one in seen) < 1e-4, seen
    assert min(one["old"] for one in seen) > 1e-2, "the old weights would have passed, too"
    print(seen)
