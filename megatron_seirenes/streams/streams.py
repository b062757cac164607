"""All the streams of a game: who is admitted, who is too old, whose turn brings an update, and the counters of it.

One object owns the three rules, so that no second copy can drift apart:
  * admit: groups with signal, at any time, also while the stream is suspended (its stage may run for another's sake);
  * evict: before a flush, a group whose own stream has made more than `max_lag` updates since its birth, or the policy
    more than `max_policy_lag`: a starved stream must not age unseen; and beyond capacity, the oldest;
  * select: exactly `flush` groups, the oldest first, at most `max_flushes` times a stream a step.

A step is `begin_step`, then `offer` for every stream, then for every stream in the game's order `take`, the update and
`record_update`. Streams hold summaries, so that every rank of a run can hold the same streams. No clock, no randomness;
`state_dict` at any point and `load_state_dict` elsewhere change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from megatron_seirenes.games.game import Game, Stream
from megatron_seirenes.records import GroupSummary
from megatron_seirenes.streams.queue import StreamQueue

StreamCounters = dict[str, float | int | None]
"""One stream in one step, in its own unit, under the names of the metrics (`streams/{stream}/...`).

`pending` and `updates_total` are as of now; `candidates`, `zero_advantage`, `accepted`, `evicted_stale`,
`evicted_overflow` and `updates` count this step; `suspended` is 0 or 1. `lag_mean`, `lag_max` (updates of the stream)
and `policy_lag_max` (updates of the policy) are those of the groups trained in this step, when they were taken; None
when none was.
"""


@dataclass(slots=True)
class _StepTally:
    """What one stream counted since `begin_step`."""

    suspended: bool = False
    candidates: int = 0
    zero_advantage: int = 0
    evicted_stale: int = 0
    evicted_overflow: int = 0
    flushes: int = 0
    updates: int = 0
    lags: list[int] = field(default_factory=list)
    policy_lags: list[int] = field(default_factory=list)


class Streams:
    """The queues of a game in its order, with each stream's update counter; the policy's version is their sum."""

    def __init__(self, game: Game):
        self._streams: dict[str, Stream] = {stream.name: stream for stream in game.streams}
        self._queues = {
            name: StreamQueue(name, flush=stream.flush, capacity=stream.capacity)
            for name, stream in self._streams.items()
        }
        self._updates = dict.fromkeys(self._streams, 0)
        self._tally = {name: _StepTally() for name in self._streams}

    @property
    def policy_version(self) -> int:
        """How many updates the policy has had from all streams."""
        return sum(self._updates.values())

    def update_counts(self) -> dict[str, int]:
        """How many updates each stream has made: what a `Birth` remembers."""
        return dict(self._updates)

    def pending(self, stream: str) -> tuple[GroupSummary, ...]:
        """The groups that wait in a stream, oldest first."""
        return self._queues[stream].pending

    def begin_step(self) -> frozenset[str]:
        """Starts the counters of a collection step; returns the streams that are suspended in it, being full."""
        self._tally = {name: _StepTally(suspended=queue.full) for name, queue in self._queues.items()}
        return frozenset(name for name, tally in self._tally.items() if tally.suspended)

    def offer(self, stream: str, groups: Sequence[GroupSummary]) -> None:
        """Admits what has signal. Raises ValueError for a group of another stream and for one that came before."""
        arrival = self._queues[stream].accept(groups)
        tally = self._tally[stream]
        tally.candidates += arrival.candidates
        tally.zero_advantage += arrival.zero_advantage
        tally.evicted_overflow += arrival.evicted_overflow

    def take(self, stream: str) -> list[GroupSummary] | None:
        """Evicts stale groups, then returns the next flush to train on, or None when there is none for this step."""
        queue, tally = self._queues[stream], self._tally[stream]
        tally.evicted_stale += queue.evict(self._is_stale)
        if tally.flushes >= self._streams[stream].max_flushes:
            return None
        groups = queue.take()
        if groups is None:
            return None
        tally.flushes += 1
        tally.lags += [self._lag(group) for group in groups]
        tally.policy_lags += [self._policy_lag(group) for group in groups]
        return groups

    def record_update(self, stream: str) -> None:
        """Counts one optimizer step made on a flush of this stream."""
        self._updates[stream] += 1
        self._tally[stream].updates += 1

    def counters(self) -> dict[str, StreamCounters]:
        """What every stream counted in this step so far, in the game's order."""
        return {name: self._counters(name) for name in self._streams}

    def state_dict(self) -> dict[str, Any]:
        """Everything remembered, as plain data that JSON keeps exactly."""
        return {
            "updates": dict(self._updates),
            "queues": {name: queue.state_dict() for name, queue in self._queues.items()},
            "tally": {name: asdict(tally) for name, tally in self._tally.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes back to where `state_dict` was taken. Raises ValueError when it is of a game with other streams."""
        stored, ours = list(state["updates"]), list(self._streams)
        if sorted(stored) != sorted(ours):
            raise ValueError(f"stored streams are {', '.join(stored)}; the game has {', '.join(ours)}")
        self._updates = {name: state["updates"][name] for name in ours}
        self._tally = {name: _StepTally(**state["tally"][name]) for name in ours}
        for name, queue in self._queues.items():
            queue.load_state_dict(state["queues"][name])

    def _lag(self, group: GroupSummary) -> int:
        return self._updates[group.stream] - group.birth.stream_updates[group.stream]

    def _policy_lag(self, group: GroupSummary) -> int:
        return self.policy_version - group.birth.policy_version

    def _is_stale(self, group: GroupSummary) -> bool:
        stream = self._streams[group.stream]
        return self._lag(group) > stream.max_lag or self._policy_lag(group) > stream.max_policy_lag

    def _counters(self, name: str) -> StreamCounters:
        tally = self._tally[name]
        return {
            "candidates": tally.candidates,
            "zero_advantage": tally.zero_advantage,
            "accepted": tally.candidates - tally.zero_advantage,
            "evicted_stale": tally.evicted_stale,
            "evicted_overflow": tally.evicted_overflow,
            "pending": len(self._queues[name]),
            "updates": tally.updates,
            "updates_total": self._updates[name],
            "lag_mean": sum(tally.lags) / len(tally.lags) if tally.lags else None,
            "lag_max": max(tally.lags, default=None),
            "policy_lag_max": max(tally.policy_lags, default=None),
            "suspended": int(tally.suspended),
        }
