"""SIGTERM in each phase of the real stack, launched directly and under torchrun: saved, in time, gone on exactly."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from agents import phase_reached, start_nodes
from launching import PHASES, Launcher, differing, outcome, train, wait_for
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
    """The second one comes while the first is obeyed: what was being saved is left, the snapshot before is whole."""
    run_dir = world / "twice"
    process = train(launcher, world, run_dir)
    assert wait_for(run_dir, process, lambda beat: beat.phase == "scoring" and beat.step == 2)
    process.send(signal.SIGTERM)
    wait_for(run_dir, process, lambda beat: beat.phase == "snapshot")
    with contextlib.suppress(ProcessLookupError):
        process.send(signal.SIGTERM)
    # Ended by it at once; or saved before it came; or ended by it on the way out.
    assert process.wait() in (128 + signal.SIGTERM, 75, -signal.SIGTERM), process.output()[-3000:]
    last = train(launcher, world, run_dir)
    assert last.wait() == 0, last.output()[-3000:]
    assert differing(outcome(run_dir), whole) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_sigterm_in_each_phase_under_torchrun(
    world: Path, whole: dict[str, Any], whole_of_two: dict[str, Any], processes: int
) -> None:
    """torchrun hands the signal on to its ranks and takes the saved stop for an end; STOPPED says what it was."""
    run_dir = world / f"torchrun-{processes}"
    print(f"\n{f'phase, {processes} ranks':<20}{'torchrun':>9}{'seconds to exit':>18}")
    # Every stop lets the run get a little further; in its last snapshot it would be done.
    for phase in ("snapshot", *PHASES[:-1], None):
        (agent,) = start_nodes(world, run_dir, 1, processes=processes)
        if phase is None:
            assert agent.wait() == 0, agent.output()[-3000:]
            break
        pid = phase_reached(agent, phase)
        asked = time.monotonic()
        agent.popen.send_signal(signal.SIGTERM)
        code = agent.wait()
        print(f"{phase:<20}{code:>9}{time.monotonic() - asked:>18.2f}", flush=True)
        assert (run_dir / "STOPPED").exists(), agent.output()[-3000:]
        assert not Path(f"/proc/{pid}").exists()
    assert not (run_dir / "STOPPED").exists()
    assert differing(outcome(run_dir), whole if processes == 1 else whole_of_two) == []


def test_a_signal_to_one_rank_of_torchrun_stops_both(world: Path, whole_of_two: dict[str, Any]) -> None:
    """SIGUSR1 reaches one rank alone: both save and end, torchrun takes it for an end (0) and starts nothing again."""
    run_dir = world / "torchrun-one-told"
    for step, phase in enumerate(("rollout", "training clean", "sync"), start=1):
        (agent,) = start_nodes(world, run_dir, 1, processes=2, restarts=2)
        first = phase_reached(agent, phase, step)
        told = next(pid for pid in agent.ranks() if pid != first)
        asked = time.monotonic()
        os.kill(told, signal.SIGUSR1)
        code = agent.wait()
        print(f"{phase}, one rank of torchrun told: code {code} after {time.monotonic() - asked:.1f} s", flush=True)
        assert code == 0 and (run_dir / "STOPPED").exists(), agent.output()[-3000:]
    (agent,) = start_nodes(world, run_dir, 1, processes=2)
    assert agent.wait() == 0, agent.output()[-3000:]
    assert differing(outcome(run_dir), whole_of_two) == []


def test_torchrun_starts_a_killed_process_again(world: Path, whole: dict[str, Any]) -> None:
    run_dir = world / "restarted"
    (agent,) = start_nodes(world, run_dir, 1, restarts=2)
    for phase in ("training clean", "snapshot"):
        os.kill(phase_reached(agent, phase), signal.SIGKILL)
    assert agent.wait() == 0, agent.output()[-3000:]
    assert differing(outcome(run_dir), whole) == []
