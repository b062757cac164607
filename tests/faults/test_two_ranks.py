"""Two ranks (data parallel, a replica each): killed, told to stop, spoilt. The other ends, and all goes on exactly."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from launching import PHASES, Beat, Launcher, Process, beat_of, differing, outcome, train_ranks, wait_for
from test_kills import LONGEST_DELAY, schedule
from tiny_world import STEPS

from megatron_seirenes.observe.writer import read_metrics

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

SIZE = 2
A_MINUTE = 60.0


@pytest.fixture(scope="module")
def whole_of_two(world: Path, launcher: Launcher) -> dict[str, Any]:
    """What an uninterrupted run of two ranks leaves behind."""
    finish(train_ranks(launcher, world, world / "two-whole", SIZE))
    return outcome(world / "two-whole")


def finish(ranks: list[Process]) -> None:
    for rank in ranks:
        assert rank.wait() == 0, rank.output()[-4000:]


def kill_one_in(
    launcher: Launcher, world: Path, run_dir: Path, step: int, phase: str, delay: float, victim: int
) -> tuple[Beat | None, float]:
    """Kills one rank within `phase`; where it struck (None: the run ended before), and how long the other lived on."""
    ranks = train_ranks(launcher, world, run_dir, SIZE)
    if not wait_for(run_dir, ranks[0], lambda beat: beat.phase == phase and beat.step >= step):
        finish(ranks)
        return None, 0.0
    time.sleep(delay)
    ranks[victim].send(signal.SIGKILL)
    killed = time.monotonic()
    struck = beat_of(run_dir, ranks[0].pid)
    other = ranks[1 - victim]
    code = other.wait()
    if ranks[victim].wait() == 0:
        return None, 0.0
    output = other.output()
    assert code == 1 and "another rank is gone" in output and "Traceback" not in output, (code, output[-3000:])
    return struck, time.monotonic() - killed


def test_killed_anywhere_and_gone_on_is_never_killed(
    world: Path, whole_of_two: dict[str, Any], launcher: Launcher
) -> None:
    draw = random.Random(2)
    hits: Counter[str] = Counter()
    longest = 0.0
    for number, kills in enumerate(schedule(draw)):
        run_dir = world / f"two-killed-{number}"
        for step, phase in kills:
            delay, victim = draw.uniform(0, LONGEST_DELAY.get(phase, 0.02)), draw.randrange(SIZE)
            struck, outlived = kill_one_in(launcher, world, run_dir, step, phase, delay, victim)
            hits[struck.phase if struck else "ended before"] += 1
            longest = max(longest, outlived)
            print(f"run {number}: rank {victim}, {phase} of step {step}: {struck}, then {outlived:.1f} s", flush=True)
        finish(train_ranks(launcher, world, run_dir, SIZE))
        assert differing(outcome(run_dir), whole_of_two) == [], f"run {number}"
    print(f"\n{'phase':<20}{'kills':>6}")
    for phase, count in hits.items():
        print(f"{phase:<20}{count:>6}")
    print(f"the other rank ended at the latest after {longest:.1f} s")
    assert longest < A_MINUTE
    assert sum(count for phase, count in hits.items() if phase in PHASES) >= 20
    assert all(hits[phase] >= 2 for phase in PHASES), hits


@pytest.mark.parametrize("told", [0, 1])
def test_a_signal_to_one_rank_stops_both(
    world: Path, whole_of_two: dict[str, Any], launcher: Launcher, told: int
) -> None:
    run_dir = world / f"two-stopped-{told}"
    for step, phase in enumerate(("rollout", "training clean", "sync"), start=1):
        ranks = train_ranks(launcher, world, run_dir, SIZE)
        assert wait_for(run_dir, ranks[0], lambda beat, s=step, p=phase: beat.phase == p and beat.step >= s)
        asked = time.monotonic()
        ranks[told].send(signal.SIGUSR1)
        codes = [rank.wait() for rank in ranks]
        print(f"{phase}, rank {told} told: codes {codes} after {time.monotonic() - asked:.1f} s", flush=True)
        assert codes == [75, 75], ranks[0].output()[-3000:]
        assert (run_dir / "STOPPED").exists()
    finish(train_ranks(launcher, world, run_dir, SIZE))
    assert differing(outcome(run_dir), whole_of_two) == []


def test_a_rank_that_hangs_ends_the_other(world: Path, whole_of_two: dict[str, Any], launcher: Launcher) -> None:
    run_dir = world / "two-hung"
    ranks = train_ranks(launcher, world, run_dir, SIZE, "faults.collective_minutes=0.3")
    assert wait_for(run_dir, ranks[0], lambda beat: beat.phase == "training clean" and beat.step >= 2)
    ranks[1].send(signal.SIGSTOP)
    stopped = time.monotonic()
    code = ranks[0].wait()
    ended = time.monotonic() - stopped
    ranks[1].send(signal.SIGKILL)
    ranks[1].wait()
    print(f"rank 1 hung, rank 0 ended after {ended:.1f} s", flush=True)
    assert code == 1 and "another rank is gone or does not answer" in ranks[0].output(), ranks[0].output()[-3000:]
    assert "Traceback" not in ranks[0].output() and ended < A_MINUTE
    finish(train_ranks(launcher, world, run_dir, SIZE))
    assert differing(outcome(run_dir), whole_of_two) == []


def test_a_nan_on_one_rank_skips_the_update_on_both(world: Path, launcher: Launcher) -> None:
    run_dir = world / "two-spoilt"
    ranks = train_ranks(launcher, world, run_dir, SIZE, spoil=(1, 2))
    finish(ranks)
    rows = read_metrics(run_dir / "metrics.jsonl")
    skipped = sum(row[key] for row in rows for key in row if key.endswith("/skipped_nonfinite"))
    assert len(rows) == STEPS and skipped == 1
    (kept,) = (run_dir / "logs").glob("nonfinite-*-rank-1.json")
    assert json.loads(kept.read_text())["sequences"]
    assert "skipped, not finite" in ranks[0].output()
