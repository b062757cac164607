"""The heartbeat says what the run does; a process in which nothing happens ends itself, whoever holds the lock."""

import json
import subprocess
import sys
import time

import pytest

from megatron_seirenes.trainer.health import Health

HANG = """
import sys, time
from pathlib import Path
from megatron_seirenes.trainer import health
health.GRACE_SECONDS = {grace}
with health.Health(Path("heartbeat.json"), Path("logs"), 0, 0.4 / 60, print) as watch:
    for _ in range(20):
        time.sleep(0.05)
        watch.beat(phase="rollout", step=3)
    print("moved on for twice the limit", flush=True)
    {hang}
"""


def test_the_file_says_what_the_run_does(tmp_path):
    path = tmp_path / "heartbeat.json"
    with Health(path, tmp_path, 0, 1.0, print) as health:
        assert json.loads(path.read_text())["phase"] == "starting"
        health.beat(phase="training clean", step=4)
        seen = json.loads(path.read_text())
        assert (seen["step"], seen["phase"]) == (4, "training clean") and seen["pid"] and seen["time"].endswith("Z")
    assert json.loads(path.read_text())["phase"] == "ended"
    assert [file.name for file in tmp_path.iterdir()] == ["heartbeat.json"]


def test_a_beat_within_a_phase_is_written_now_and_then(tmp_path):
    now = 0.0
    health = Health(tmp_path / "heartbeat.json", tmp_path, 0, None, print, clock=lambda: now)
    with health:
        written = (tmp_path / "heartbeat.json").stat().st_mtime_ns
        now = 1.0
        health.beat()
        assert (tmp_path / "heartbeat.json").stat().st_mtime_ns == written
        time.sleep(0.01)
        now = 6.0
        health.beat()
        assert (tmp_path / "heartbeat.json").stat().st_mtime_ns > written


def test_a_full_disk_does_not_end_the_run_here(tmp_path):
    with Health(tmp_path / "gone" / "heartbeat.json", tmp_path, 0, None, print) as health:
        health.beat(phase="rollout")


@pytest.mark.parametrize(
    ("hang", "message"),
    [
        ("time.sleep(60)", True),
        # `ctypes.PyDLL` keeps the interpreter's lock, as an engine stuck in C++ may: no Python thread can run.
        ("import ctypes; ctypes.PyDLL(None).sleep(60)", False),
    ],
)
def test_a_process_that_hangs_ends_itself_and_says_where(tmp_path, hang, message):
    program = HANG.format(grace=1.0, hang=hang)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 1 and time.monotonic() - began < 40
    assert "moved on" in done.stdout
    assert ("nothing has happened for 0 s in rollout of step 3" in done.stderr) == message
    assert "<string>" in (tmp_path / "logs" / "hung-rank-0.txt").read_text()
    assert json.loads((tmp_path / "heartbeat.json").read_text())["step"] == 3


def test_half_the_time_in_silence_is_said_once(tmp_path):
    now, said = 0.0, []
    with Health(None, tmp_path, 0, 0.5 / 60, said.append, clock=lambda: now) as health:
        now = 0.3
        time.sleep(0.3)
        assert len(said) == 1 and "nothing has happened" in said[0]
        health.beat()
