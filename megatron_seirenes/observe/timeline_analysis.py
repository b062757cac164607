"""What a timeline says of a run: when engine and trainer had nothing to do, and what each stage added to a collection.

A step's window opens with its first rollout phase (one that follows a sync, which ends a step) and closes with the last
phase before the next one opens, so the time between a kill and the resumption counts nowhere. Times are of one rank. A
rollout counts from the moment it was handed to the engine, waiting for a place included: the engine is idle when none
is unfinished, and no evaluation is running.

What is not measured here: how much a stage slows another by sharing the engine with it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from megatron_seirenes.observe.timeline import Event, events_of

ROLLOUT, SYNC, EVALUATION = "rollout", "sync", "evaluation"
TRAINER = ("scoring", "training")
"""Phases in which the trainer works: `scoring`, and `training clean`, `training adversary`, …"""

POINTS = 300
"""Points at which the unfinished rollouts of a step are counted."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of one kind: starts and ends in seconds, float64 of one length."""

    start: Floats
    end: Floats

    def between(self, start: float, end: float) -> Spans:
        """Those that begin in [start, end)."""
        chosen = (self.start >= start) & (self.start < end)
        return Spans(self.start[chosen], self.end[chosen])


NO_SPANS = Spans(np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One collection step, or several together, in seconds.

    `added[stage]` is how long rollouts of the stage ran while none of an earlier stage did: what it adds to a
    collection that would have ended without it. `judging_alone` is how long verdicts were awaited with no rollout left
    to run: the part of judging that lies on the critical path.
    """

    seconds: float
    engine_busy: float
    trainer_busy: float
    added: Mapping[str, float]
    judging_alone: float

    @property
    def engine_idle(self) -> float:
        """Share of the time without an unfinished rollout and outside evaluations."""
        return 1 - self.engine_busy / self.seconds

    @property
    def trainer_idle(self) -> float:
        """Share of the time in which the trainer neither scored nor updated."""
        return 1 - self.trainer_busy / self.seconds

    @property
    def judging_share(self) -> float:
        """Judging's share of the critical path."""
        return self.judging_alone / self.seconds

    def __add__(self, other: StepTimes) -> StepTimes:
        return StepTimes(
            self.seconds + other.seconds,
            self.engine_busy + other.engine_busy,
            self.trainer_busy + other.trainer_busy,
            {stage: seconds + other.added[stage] for stage, seconds in self.added.items()},
            self.judging_alone + other.judging_alone,
        )


@dataclass(frozen=True, slots=True)
class TimelineAnalysis:
    """The steps of a timeline in their order, the stages in theirs, and the unfinished rollouts of the last step.

    `running[stage]` counts at the moments `moments` (seconds from the beginning of the last step's rollout phase).
    """

    steps: tuple[StepTimes, ...]
    stages: tuple[str, ...]
    moments: tuple[float, ...]
    running: Mapping[str, tuple[int, ...]]

    @property
    def total(self) -> StepTimes:
        """All steps together."""
        return reduce(add, self.steps)


def analyse_timeline(path: Path, rank: int = 0) -> TimelineAnalysis | None:
    """The analysis of one rank of a trace file; None when no collection has ended in it. A torn end is left out."""
    return analyse_events(events_of(path), rank)


def analyse_events(events: Iterable[Event], rank: int = 0) -> TimelineAnalysis | None:
    """The analysis of events as `Timeline` makes them. Pure."""
    kinds = _collect(event for event in events if event["ph"] == "X" and event["pid"] == rank)
    phases = {name: spans for (category, name), spans in kinds.items() if category == "phase"}
    if ROLLOUT not in phases:
        return None
    rollouts = {name: spans for (category, name), spans in kinds.items() if category == "rollout"}
    judging = {name: spans for (category, name), spans in kinds.items() if category == "judging"}
    stages = _order(rollouts, judging)
    windows = list(_windows(phases))
    steps = tuple(_step(window, phases, rollouts, judging, stages) for window in windows)
    moments, running = _running(windows[-1], phases[ROLLOUT], rollouts, stages)
    return TimelineAnalysis(steps, stages, moments, running)


def covered(*groups: Spans) -> float:
    """Seconds in which at least one span of any group runs."""
    start = np.concatenate([spans.start for spans in groups] or [np.empty(0)])
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start = start[order]
    end = np.maximum.accumulate(np.concatenate([spans.end for spans in groups])[order])
    gaps = np.maximum(start[1:] - end[:-1], 0.0)
    return float(end[-1] - start[0] - gaps.sum())


def _collect(events: Iterable[Event]) -> dict[tuple[str, str], Spans]:
    """Spans by category and, for rollouts and judging, stage; else the first word of the name."""
    found: dict[tuple[str, str], tuple[array[float], array[float]]] = defaultdict(lambda: (array("d"), array("d")))
    for event in events:
        starts, ends = found[event["cat"], event["args"].get("stage") or event["name"].split(" ")[0]]
        starts.append(event["ts"] / 1e6)
        ends.append((event["ts"] + event["dur"]) / 1e6)
    return {key: Spans(np.array(starts), np.array(ends)) for key, (starts, ends) in found.items()}


def _order(rollouts: Mapping[str, Spans], judging: Mapping[str, Spans]) -> tuple[str, ...]:
    """Stages as they follow one another: what starts first first, judged ones before hints of the same moment."""
    return tuple(
        sorted(rollouts, key=lambda stage: (round(float(rollouts[stage].start.min()), 3), stage not in judging, stage))
    )


def _windows(phases: Mapping[str, Spans]) -> Iterator[tuple[float, float]]:
    opened = _first_of_each_step(phases)
    start = np.concatenate([spans.start for spans in phases.values()])
    end = np.concatenate([spans.end for spans in phases.values()])
    for begin, following in zip(opened, [*opened[1:], np.inf], strict=True):
        yield float(begin), float(end[(start >= begin) & (start < following)].max())


def _first_of_each_step(phases: Mapping[str, Spans]) -> Floats:
    """Starts of the rollout phases that open a step: between them and the one before, weights were moved."""
    opened = np.sort(phases[ROLLOUT].start)
    syncs_before = np.searchsorted(np.sort(phases.get(SYNC, NO_SPANS).start), opened)
    return opened[np.concatenate([[True], syncs_before[1:] > syncs_before[:-1]])]


def _step(
    window: tuple[float, float],
    phases: Mapping[str, Spans],
    rollouts: Mapping[str, Spans],
    judging: Mapping[str, Spans],
    stages: Sequence[str],
) -> StepTimes:
    here = {stage: rollouts[stage].between(*window) for stage in stages}
    until = [covered(*(here[stage] for stage in stages[:count])) for count in range(len(stages) + 1)]
    answers = [spans.between(*window) for spans in judging.values()]
    training = [phases.get(name, NO_SPANS).between(*window) for name in TRAINER]
    evaluation = phases.get(EVALUATION, NO_SPANS).between(*window)
    return StepTimes(
        seconds=window[1] - window[0],
        engine_busy=covered(*here.values(), evaluation),
        trainer_busy=covered(*training),
        added={stage: until[count + 1] - until[count] for count, stage in enumerate(stages)},
        judging_alone=covered(*here.values(), *answers) - until[-1],
    )


def _running(
    window: tuple[float, float], collecting: Spans, rollouts: Mapping[str, Spans], stages: Sequence[str]
) -> tuple[tuple[float, ...], dict[str, tuple[int, ...]]]:
    begin = window[0]
    end = float(collecting.end[collecting.start == begin].max())
    moments = np.linspace(begin, end, POINTS)
    running = {}
    for stage in stages:
        spans = rollouts[stage].between(*window)
        started = np.searchsorted(np.sort(spans.start), moments, side="right")
        ended = np.searchsorted(np.sort(spans.end), moments, side="right")
        running[stage] = tuple(int(count) for count in started - ended)
    return tuple(float(moment) for moment in moments - begin), running
