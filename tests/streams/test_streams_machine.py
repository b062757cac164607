"""Any sequence of steps: every group ends once, order is kept, bounds hold, and saving and loading change nothing.

The model beside the streams is a list of names for each fate; a twin that is saved to JSON and loaded at random moments
has to answer every call as the one that never was.
"""

from __future__ import annotations

import json
from collections import Counter

from group_maker import make_summary
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from megatron_seirenes.games.registry import StreamOverrides, build_game
from megatron_seirenes.records import Birth
from megatron_seirenes.streams.streams import Streams

NAMES = ("clean", "adversary", "robust")


def small_game(flushes, slacks, max_lag, max_policy_lag, max_flushes):
    overrides = {
        name: StreamOverrides(
            flush=flush,
            capacity=flush + slack,
            max_lag=max_lag,
            max_policy_lag=max_policy_lag,
            max_flushes=max_flushes,
        )
        for name, flush, slack in zip(NAMES, flushes, slacks, strict=True)
    }
    return build_game("seirenes", streams=overrides)


class StreamsMachine(RuleBasedStateMachine):
    @initialize(
        flushes=st.tuples(*[st.integers(1, 3)] * 3),
        slacks=st.tuples(*[st.integers(0, 4)] * 3),
        max_lag=st.integers(0, 2),
        max_policy_lag=st.integers(0, 5),
        max_flushes=st.integers(1, 2),
    )
    def start(self, flushes, slacks, max_lag, max_policy_lag, max_flushes):
        self.game = small_game(flushes, slacks, max_lag, max_policy_lag, max_flushes)
        self.streams, self.twin = Streams(self.game), Streams(self.game)
        self.step = 0
        self.accepted = {name: [] for name in NAMES}
        self.trained = {name: [] for name in NAMES}
        self.evicted = {name: Counter() for name in NAMES}
        self.births = {}
        self.updates = dict.fromkeys(NAMES, 0)
        self.offered = set(NAMES)

    def both(self, call):
        answer, twin_answer = call(self.streams), call(self.twin)
        assert answer == twin_answer
        return answer

    @rule()
    def begin_step(self):
        self.keep_eviction_totals()
        self.step += 1
        self.offered = set()
        full = {name for name in NAMES if len(self.streams.pending(name)) >= self.game.stream(name).capacity}
        assert self.both(lambda streams: streams.begin_step()) == full
        for name, counters in self.streams.counters().items():
            assert counters["suspended"] == (name in full)
            assert counters["candidates"] == counters["updates"] == counters["evicted_stale"] == 0

    def keep_eviction_totals(self):
        for name, counters in self.streams.counters().items():
            self.evicted[name].update({key: counters[key] for key in ("evicted_stale", "evicted_overflow")})

    @precondition(lambda self: self.step > 0 and len(self.offered) < len(NAMES))
    @rule(data=st.data(), signals=st.lists(st.booleans(), max_size=7))
    def offer(self, data, signals):
        name = data.draw(st.sampled_from(sorted(set(NAMES) - self.offered)))
        self.offered.add(name)
        birth = Birth(self.step, self.streams.policy_version, self.streams.update_counts())
        groups = [make_summary(f"{self.step}/{i}", name, birth, signal) for i, signal in enumerate(signals)]
        self.births |= {(name, group.id): birth for group in groups}
        self.accepted[name] += [group.id for group in groups if group.has_signal]
        self.both(lambda streams: streams.offer(name, groups))
        counters = self.streams.counters()[name]
        assert (counters["candidates"], counters["accepted"]) == (len(signals), sum(signals))
        assert counters["zero_advantage"] == len(signals) - sum(signals)

    @precondition(lambda self: self.step > 0)
    @rule(name=st.sampled_from(NAMES), learns=st.booleans())
    def take(self, name, learns):
        stream = self.game.stream(name)
        flushes = len(self.trained_this_step(name)) // stream.flush
        waiting = [group.id for group in self.streams.pending(name) if not self.stale(name, group.id)]
        groups = self.both(lambda streams: streams.take(name))
        assert (groups is None) == (len(waiting) < stream.flush or flushes >= stream.max_flushes)
        if groups is None:
            assert [group.id for group in self.streams.pending(name)] == waiting
            return
        assert [group.id for group in groups] == waiting[: stream.flush]
        assert len(self.streams.pending(name)) < stream.capacity
        self.trained[name] += [(group.id, self.step) for group in groups]
        counters = self.streams.counters()[name]
        assert counters["lag_max"] <= stream.max_lag
        assert counters["policy_lag_max"] <= stream.max_policy_lag
        if learns:
            self.both(lambda streams: streams.record_update(name))
            self.updates[name] += 1

    def trained_this_step(self, name):
        return [key for key, step in self.trained[name] if step == self.step]

    def stale(self, name, key):
        birth, stream = self.births[name, key], self.game.stream(name)
        own = self.updates[name] - birth.stream_updates[name]
        return own > stream.max_lag or sum(self.updates.values()) - birth.policy_version > stream.max_policy_lag

    @rule()
    def save_and_load_the_twin(self):
        state = json.loads(json.dumps(self.twin.state_dict()))
        self.twin = Streams(self.game)
        self.twin.load_state_dict(state)

    @invariant()
    def every_group_has_one_fate_and_order_is_kept(self):
        if not hasattr(self, "game"):
            return
        assert self.streams.state_dict() == self.twin.state_dict()
        assert self.streams.update_counts() == self.updates
        assert self.streams.policy_version == sum(self.updates.values())
        for name in NAMES:
            trained = [key for key, _ in self.trained[name]]
            pending = [group.id for group in self.streams.pending(name)]
            alive = trained + pending
            counters = self.streams.counters()[name]
            evicted = self.evicted[name].total() + counters["evicted_stale"] + counters["evicted_overflow"]
            assert len(set(alive)) == len(alive)
            assert [key for key in self.accepted[name] if key in set(alive)] == alive
            assert len(self.accepted[name]) == len(alive) + evicted
            assert len(pending) == counters["pending"] <= self.game.stream(name).capacity


StreamsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreams = StreamsMachine.TestCase
