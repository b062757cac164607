"""Two ranks, data or tensor parallel: killed, told to stop, hung, spoilt. The other ends, and all goes on exactly."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from launching import PHASES, Beat, Launcher, Process, beat_of, differing, outcome, train_ranks, wait_for
from test_kills import LONGEST_DELAY, missed, schedule
from tiny_world import STEPS

from megatron_seirenes.observe.writer import read_metrics

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]

SIZE = 2
A_MINUTE = 60.0
LAYOUTS = {"data": [], "tensor": ["parallel.tensor=2", "parallel.sequence_parallel=true", "rollout.tensor=2"]}
"""Two replicas of one rank each; actor and engine spread over both ranks."""


@dataclass(frozen=True)
class Pair:
    """Runs of two ranks in one layout, and what an uninterrupted one leaves behind."""

    layout: str
    launcher: Launcher
    world: Path
    whole: dict[str, Any]

    def run_dir(self, name: str) -> Path:
        return self.world / f"{self.layout}-{name}"

    def train(self, name: str, *arguments: str, **faults: Any) -> list[Process]:
        arguments = (*LAYOUTS[self.layout], *arguments)
        return train_ranks(self.launcher, self.world, self.run_dir(name), SIZE, *arguments, **faults)

    def ends_as_if_undisturbed(self, name: str) -> None:
        finish(self.train(name))
        assert differing(outcome(self.run_dir(name)), self.whole) == [], name


@pytest.fixture(scope="module", params=LAYOUTS)
def pair(request: pytest.FixtureRequest, world: Path, launcher: Launcher) -> Pair:
    whole: dict[str, Any] = {}
    pair = Pair(request.param, launcher, world, whole)
    finish(pair.train("whole"))
    whole |= outcome(pair.run_dir("whole"))
    return pair


def finish(ranks: list[Process]) -> None:
    for rank in ranks:
        assert rank.wait() == 0, rank.output()[-4000:]


def kill_one_in(
    pair: Pair, name: str, step: int, phase: str, delay: float | None, victim: int
) -> tuple[Beat | None, float]:
    """Kills one rank within `phase`; where it struck (None: the run ended before), and how long the other lived on.

    Without `delay` it is struck from within, as the phase begins.
    """
    strike = (step, phase) if delay is None else None
    ranks, run_dir = pair.train(name, strike=strike, victim=victim), pair.run_dir(name)
    if delay is None:
        assert ranks[victim].wait() == -signal.SIGKILL, ranks[victim].output()[-3000:]
    elif wait_for(run_dir, ranks[0], lambda beat: beat.phase == phase and beat.step >= step):
        time.sleep(delay)
        ranks[victim].send(signal.SIGKILL)
    else:
        finish(ranks)
        return None, 0.0
    killed = time.monotonic()
    struck = Beat(step, phase) if delay is None else beat_of(run_dir, ranks[0].pid)
    other = ranks[1 - victim]
    code = other.wait()
    if ranks[victim].wait() == 0:
        return None, 0.0
    output = other.output()
    assert code == 1 and "another rank is gone" in output and "Traceback" not in output, (code, output[-3000:])
    return struck, time.monotonic() - killed


def test_killed_anywhere_and_gone_on_is_never_killed(pair: Pair) -> None:
    draw = random.Random(2)
    hits: Counter[str] = Counter()
    longest = 0.0
    runs = schedule(draw)
    for number in range(len(runs) + 1):
        from_outside = number < len(runs)
        kills = runs[number] if from_outside else missed(hits)
        if not kills:
            break
        for step, phase in kills:
            delay = draw.uniform(0, LONGEST_DELAY.get(phase, 0.02)) if from_outside else None
            victim = draw.randrange(SIZE)
            struck, outlived = kill_one_in(pair, f"killed-{number}", step, phase, delay, victim)
            hits[struck.phase if struck else "ended before"] += 1
            longest = max(longest, outlived)
            print(f"run {number}: rank {victim}, {phase} of step {step}: {struck}, then {outlived:.1f} s", flush=True)
        pair.ends_as_if_undisturbed(f"killed-{number}")
    print(f"\n{pair.layout + ' parallel':<20}{'kills':>6}")
    for phase, count in hits.items():
        print(f"{phase:<20}{count:>6}")
    print(f"the other rank ended at the latest after {longest:.1f} s")
    assert longest < A_MINUTE
    assert sum(count for phase, count in hits.items() if phase in PHASES) >= 20
    assert missed(hits) == [], hits


@pytest.mark.parametrize("told", [0, 1])
def test_a_signal_to_one_rank_stops_both(pair: Pair, told: int) -> None:
    """SIGTERM and SIGUSR1 in turn, a phase later each time."""
    name = f"stopped-{told}"
    run_dir, signals = pair.run_dir(name), (signal.SIGTERM, signal.SIGUSR1)
    # Not in the last step: a run that is told to stop when all is done ends as done.
    for number, phase in enumerate((*PHASES[told::2],)):
        step, asked_with = min(number + 1, STEPS - 1), signals[number % 2]
        ranks = pair.train(name)
        assert wait_for(run_dir, ranks[0], lambda beat, s=step, p=phase: beat.phase == p and beat.step >= s)
        asked = time.monotonic()
        ranks[told].send(asked_with)
        codes = [rank.wait() for rank in ranks]
        after = f"{codes} after {time.monotonic() - asked:.1f} s"
        print(f"{pair.layout}, {phase}, {asked_with.name} to rank {told}: codes {after}", flush=True)
        assert codes == [75, 75], ranks[0].output()[-3000:]
        assert (run_dir / "STOPPED").exists()
    pair.ends_as_if_undisturbed(name)


@pytest.mark.parametrize("phase", ["rollout", "training clean"])
def test_a_rank_that_hangs_ends_the_other(pair: Pair, phase: str) -> None:
    """Frozen in the engine or in the actor; replicas that generate meet at the end of the round."""
    name = f"hung-{phase.split()[0]}"
    ranks, run_dir = pair.train(name, "faults.collective_minutes=0.3"), pair.run_dir(name)
    assert wait_for(run_dir, ranks[0], lambda beat: beat.phase == phase and beat.step >= 2)
    ranks[1].send(signal.SIGSTOP)
    stopped = time.monotonic()
    code = ranks[0].wait()
    ended = time.monotonic() - stopped
    ranks[1].send(signal.SIGKILL)
    ranks[1].wait()
    print(f"{pair.layout}, {phase}: rank 1 hung, rank 0 ended after {ended:.1f} s", flush=True)
    assert code == 1 and "another rank is gone or does not answer" in ranks[0].output(), ranks[0].output()[-3000:]
    assert "Traceback" not in ranks[0].output() and ended < A_MINUTE
    pair.ends_as_if_undisturbed(name)


def test_a_nan_on_one_rank_skips_the_update_on_both(pair: Pair) -> None:
    ranks, run_dir = pair.train("spoilt", spoil=(1, 2)), pair.run_dir("spoilt")
    finish(ranks)
    rows = read_metrics(run_dir / "metrics.jsonl")
    skipped = sum(row[key] for row in rows for key in row if key.endswith("/skipped_nonfinite"))
    assert len(rows) == STEPS and skipped == 1
    (kept,) = (run_dir / "logs").glob("nonfinite-*-rank-1.json")
    assert json.loads(kept.read_text())["sequences"]
    assert "skipped, not finite" in ranks[0].output()
