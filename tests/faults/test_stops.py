"""SIGTERM in each phase of the real stack, launched directly and under torchrun: saved, in time, gone on exactly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launching import PATIENCE, PHASES, Launcher, differing, outcome, train, wait_for
from tiny_world import STEPS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]


def test_sigterm_in_each_phase(world: Path, whole: dict[str, Any], launcher: Launcher) -> None:
    """Two runs, each stopped again and again: exit code 75, STOPPED, and the end of a run that nobody disturbed."""
    print(f"\n{'phase':<20}{'step':>6}{'code':>6}{'seconds to exit':>18}")
    for number, phases in enumerate((PHASES[::2], PHASES[1::2])):
        run_dir = world / f"stopped-{number}"
        # Not in the last step: a run that is told to stop when all is done ends as done.
        for step, phase in zip((1, 2, STEPS - 1, STEPS - 1), phases, strict=True):
            process = train(launcher, world, run_dir)
            assert wait_for(run_dir, process, lambda b, s=step, p=phase: b.phase == p and b.step >= s), process.output()
            asked = time.monotonic()
            process.send(signal.SIGTERM)
            code = process.wait()
            print(f"{phase:<20}{step:>6}{code:>6}{time.monotonic() - asked:>18.2f}", flush=True)
            ended = json.loads((run_dir / "heartbeat.json").read_text())["phase"] == "ended"
            assert code == 75 and (run_dir / "STOPPED").exists() and ended, process.output()[-3000:]
            assert "everything is saved" in process.output()
        last = train(launcher, world, run_dir)
        assert last.wait() == 0, last.output()[-3000:]
        assert not (run_dir / "STOPPED").exists()
        assert differing(outcome(run_dir), whole) == []


def test_a_second_signal_ends_at_once(world: Path, whole: dict[str, Any], launcher: Launcher) -> None:
    run_dir = world / "twice"
    process = train(launcher, world, run_dir)
    assert wait_for(run_dir, process, lambda beat: beat.phase == "scoring" and beat.step == 2)
    process.send(signal.SIGSTOP)
    for _ in range(2):
        process.send(signal.SIGTERM)
        time.sleep(0.2)
        process.send(signal.SIGCONT)
    # Saved before the second one came; ended by it while it saved; or while it was ending anyway.
    assert process.wait() in (75, 128 + signal.SIGTERM, -signal.SIGTERM), process.output()[-3000:]
    last = train(launcher, world, run_dir)
    assert last.wait() == 0, last.output()[-3000:]
    assert differing(outcome(run_dir), whole) == []


@pytest.mark.parametrize("processes", [1])
def test_sigterm_in_each_phase_under_torchrun(world: Path, whole: dict[str, Any], processes: int) -> None:
    """torchrun hands the signal on and takes the saved stop for an end; STOPPED says what it was."""
    run_dir = world / f"torchrun-{processes}"
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--max-restarts=0"]
    command += ["--signals-to-handle=SIGTERM,SIGINT,SIGUSR1", "--shutdown-timeout=300", "-m", "megatron_seirenes"]
    command += ["train", str(world / "run.yaml"), f"run.dir={run_dir}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    print(f"\n{'phase':<20}{'torchrun':>9}{'seconds to exit':>18}")
    # Every stop lets the run get a little further; in its last snapshot it would be done.
    for phase in ("snapshot", *PHASES[:-1], None):
        log = (world / "torchrun.log").open("a")
        launched = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        if phase is None:
            assert launched.wait(PATIENCE) == 0, (world / "torchrun.log").read_text()[-3000:]
            break
        pid = phase_reached(run_dir, launched, phase)
        asked = time.monotonic()
        launched.send_signal(signal.SIGTERM)
        code = launched.wait(PATIENCE)
        print(f"{phase:<20}{code:>9}{time.monotonic() - asked:>18.2f}", flush=True)
        assert (run_dir / "STOPPED").exists(), (world / "torchrun.log").read_text()[-3000:]
        assert not Path(f"/proc/{pid}").exists()
    assert not (run_dir / "STOPPED").exists()
    assert differing(outcome(run_dir), whole) == []


def test_torchrun_starts_a_killed_process_again(world: Path, whole: dict[str, Any]) -> None:
    run_dir = world / "restarted"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "--max-restarts=2"]
    command += ["-m", "megatron_seirenes", "train", str(world / "run.yaml"), f"run.dir={run_dir}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    log = (world / "restarts.log").open("w")
    launched = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    for phase in ("training clean", "snapshot"):
        os.kill(phase_reached(run_dir, launched, phase), signal.SIGKILL)
    assert launched.wait(PATIENCE) == 0, (world / "restarts.log").read_text()[-3000:]
    assert differing(outcome(run_dir), whole) == []


def phase_reached(run_dir: Path, launched: subprocess.Popen[bytes], phase: str) -> int:
    """Waits until a live process of the run is in `phase`; returns its id."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and launched.poll() is None:
        try:
            beat = json.loads((run_dir / "heartbeat.json").read_text())
        except (OSError, ValueError):
            beat = {"phase": None, "pid": 0}
        if beat["phase"] == phase and Path(f"/proc/{beat['pid']}").exists():
            return int(beat["pid"])
        time.sleep(0.002)
    raise AssertionError(f"the run did not come to {phase}")
