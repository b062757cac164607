"""A run of the real stack that is killed at any moment and started again ends like one that was never killed.

SIGKILL strikes at a random moment of a drawn phase of a drawn step. On a busy machine it may come when a short phase is
over: phases that were missed are then struck from within, as they begin. The table that is printed says which were hit.
Weights, questions asked, rollouts and metrics of the end must be those of an uninterrupted run, bit for bit.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from launching import PHASES, Beat, Launcher, beat_of, children_of, differing, outcome, train, wait_for
from tiny_world import STEPS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

KILLS_A_PHASE = 3
RUNS = 4
HITS_A_PHASE = 2
LONGEST_DELAY = {"rollout": 0.1, "scoring": 0.03, "sync": 0.03, "snapshot": 0.15}
"""Seconds after the beginning of a phase within which the kill falls; 0.02 where nothing is said."""


def schedule(draw: random.Random) -> list[list[tuple[int, str]]]:
    """For each run the kills it suffers: (step, phase), in order of steps."""
    kills = [phase for phase in PHASES for _ in range(KILLS_A_PHASE)]
    draw.shuffle(kills)
    runs = [[(draw.randint(1, STEPS), phase) for phase in kills[index::RUNS]] for index in range(RUNS)]
    return [sorted(run) for run in runs]


def missed(hits: Counter[str]) -> list[tuple[int, str]]:
    """Kills in the phases that were not struck often enough, in order of steps; the last step need not have all."""
    phases = [phase for phase in PHASES for _ in range(HITS_A_PHASE - hits[phase])]
    return [(1 + index * (STEPS - 1) // len(phases), phase) for index, phase in enumerate(phases)]


def kill_in(launcher: Launcher, world: Path, run_dir: Path, step: int, phase: str, delay: float | None) -> Beat | None:
    """Starts the run and kills it within `phase`; where it struck, or None when the run ended before.

    Without `delay` it is struck from within, as the phase begins.
    """
    process = train(launcher, world, run_dir, strike=(step, phase) if delay is None else None)
    if delay is None:
        assert process.wait() == -signal.SIGKILL, process.output()[-4000:]
        return beat_of(run_dir, process.pid)
    if not wait_for(run_dir, process, lambda beat: beat.phase == phase and beat.step >= step):
        assert process.wait() == 0, process.output()[-4000:]
        return None
    time.sleep(delay)
    workers = children_of(process.pid)
    process.send(signal.SIGKILL)
    code = process.wait()
    if code == 0:
        return None
    assert code == -signal.SIGKILL, process.output()[-4000:]
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()], "judge workers outlive the run"
    return beat_of(run_dir, process.pid)


def test_killed_judge_workers_change_nothing(world: Path, whole: dict, launcher: Launcher) -> None:
    run_dir = world / "judgeless"
    process = train(launcher, world, run_dir)
    killed = 0
    for step in (1, 2, 3, 4):
        assert wait_for(run_dir, process, lambda beat, s=step: beat.phase == "rollout" and beat.step >= s)
        for worker in children_of(process.pid):
            os.kill(worker, signal.SIGKILL)
            killed += 1
    assert process.wait() == 0, process.output()[-4000:]
    assert killed > 0
    assert differing(outcome(run_dir), whole) == []


def test_killed_anywhere_and_gone_on_is_never_killed(world: Path, whole: dict, launcher: Launcher) -> None:
    draw = random.Random(20)
    hits: Counter[str] = Counter()
    runs = schedule(draw)
    for number in range(RUNS + 1):
        kills = runs[number] if number < RUNS else missed(hits)
        if not kills:
            break
        run_dir = world / f"killed-{number}"
        for step, phase in kills:
            delay = draw.uniform(0, LONGEST_DELAY.get(phase, 0.02)) if number < RUNS else None
            struck = kill_in(launcher, world, run_dir, step, phase, delay)
            hits[struck.phase if struck else "ended before"] += 1
            print(f"run {number}: aimed at {phase} of step {step}, struck {struck}", flush=True)
        last = train(launcher, world, run_dir)
        assert last.wait() == 0, last.output()[-4000:]
        assert differing(outcome(run_dir), whole) == [], f"run {number}"
    print(f"\n{'phase':<20}{'kills':>6}")
    for phase, count in hits.items():
        print(f"{phase:<20}{count:>6}")
    assert sum(count for phase, count in hits.items() if phase in PHASES) >= 20
    assert missed(hits) == [], hits
