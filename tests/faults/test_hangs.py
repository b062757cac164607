"""An engine that hangs or does not move: one message, and the run goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import start_nodes
from launching import differing, outcome

from megatron_seirenes.observe.writer import read_metrics

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("toy_program.py")
FAULTY = str(Path(__file__).with_name("faulty_engine.py"))


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


def test_torchrun_restarts_a_run_whose_engine_hung(world: Path, whole: dict[str, Any]) -> None:
    """The real stack: the first life ends itself in step 3, the second goes on from the snapshot of step 2."""
    run_dir = world / "hung"
    faulty = (FAULTY, "hung", "3", str(world / "hung-once"))
    (agent,) = start_nodes(world, run_dir, 1, "faults.hung_minutes=0.4", restarts=1, program=faulty)
    assert agent.wait() == 0, agent.output()[-4000:]
    output = agent.output()
    assert output.count("in rollout of step 3 (faults.hung_minutes)") == 1
    assert f"going on from {run_dir / 'snapshots' / 'step-000002'}" in output
    assert differing(outcome(run_dir), whole) == []


def test_generation_that_does_not_move_is_asked_again(world: Path, whole: dict[str, Any]) -> None:
    """The real stack: the step is marked inexact, and the same seeds give the same answers."""
    run_dir = world / "stalled"
    faulty = (FAULTY, "stalled", "3", str(world / "stalled-once"))
    (agent,) = start_nodes(world, run_dir, 1, "faults.stalled_steps=20", program=faulty)
    assert agent.wait() == 0, agent.output()[-4000:]
    assert agent.output().count("they are asked again with the same seeds; the step is inexact") == 1
    ended = outcome(run_dir)
    assert [row.pop("rollout/inexact") for row in ended["rows"]] == [0, 0, 1, 0]
    expected = {**whole, "rows": [{k: row[k] for k in row if k != "rollout/inexact"} for row in whole["rows"]]}
    assert differing(ended, expected) == []
