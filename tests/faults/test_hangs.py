"""An engine that hangs inside a step ends its process with one message; started again, the run goes on exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_seirenes.observe.writer import read_metrics

pytestmark = pytest.mark.faults

PROGRAM = Path(__file__).with_name("toy_program.py")


def toy(run_dir: Path, hang: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])}
    command = [sys.executable, str(PROGRAM), str(run_dir), "0.05", hang]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def rows(run_dir: Path) -> list[dict]:
    found = read_metrics(run_dir / "metrics.jsonl")
    return [{key: row[key] for key in row if not key.startswith(("time/", "throughput/"))} for row in found]


@pytest.mark.parametrize("hang", ["sleeping", "locked"])
def test_a_hung_engine_ends_the_process_and_the_next_start_goes_on(tmp_path: Path, hang: str) -> None:
    hung = toy(tmp_path / "run", hang)
    assert hung.returncode == 1
    if hang == "sleeping":
        (message,) = hung.stderr.strip().splitlines()
        assert "in rollout of step 3" in message and "a restart goes on from the newest snapshot" in message
    assert "hanging_step" in (tmp_path / "run" / "logs" / "hung-rank-0.txt").read_text()
    beat = json.loads((tmp_path / "run" / "heartbeat.json").read_text())
    assert (beat["step"], beat["phase"]) == (3, "rollout")
    again = toy(tmp_path / "run", "never")
    assert again.returncode == 0 and "6 collection steps" in again.stdout, again.stderr
    assert toy(tmp_path / "whole", "never").returncode == 0
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
