"""The rules of the streams one by one: overflow, lag, cadence, counters, replay, and what is refused."""

from __future__ import annotations

import json

import pytest
from group_maker import make_summary

from megatron_seirenes.games.registry import StreamOverrides, build_game
from megatron_seirenes.records import Birth
from megatron_seirenes.streams.queue import StreamQueue
from megatron_seirenes.streams.streams import Streams


def seirenes_streams(**overrides) -> Streams:
    same = {name: StreamOverrides(**overrides) for name in ("clean", "adversary", "robust")}
    return Streams(build_game("seirenes", streams=same))


def offer(streams: Streams, stream: str, step: int, count: int, signal: bool = True) -> None:
    birth = Birth(step, streams.policy_version, streams.update_counts())
    streams.offer(stream, [make_summary(f"{step}/{index}", stream, birth, signal) for index in range(count)])


def ids(groups) -> list[str]:
    return [group.id for group in groups]


def update(streams: Streams, stream: str, step: int, flush: int) -> None:
    offer(streams, stream, step, flush)
    assert streams.take(stream) is not None
    streams.record_update(stream)


def test_the_oldest_leave_beyond_capacity_and_a_full_stream_is_suspended():
    streams = seirenes_streams(flush=2, capacity=3)
    assert streams.begin_step() == frozenset()
    offer(streams, "clean", 1, 5)
    assert ids(streams.pending("clean")) == ["1/2", "1/3", "1/4"]
    assert streams.begin_step() == {"clean"}
    offer(streams, "clean", 2, 1)
    assert ids(streams.pending("clean")) == ["1/3", "1/4", "2/0"]
    counters = streams.counters()["clean"]
    assert (counters["suspended"], counters["evicted_overflow"], counters["pending"]) == (1, 1, 3)


def test_a_flush_is_the_oldest_and_one_a_step():
    streams = seirenes_streams(flush=2, capacity=9)
    streams.begin_step()
    offer(streams, "clean", 1, 5)
    assert ids(streams.take("clean")) == ["1/0", "1/1"]
    assert streams.take("clean") is None
    streams.begin_step()
    assert ids(streams.take("clean")) == ["1/2", "1/3"]
    streams.begin_step()
    assert streams.take("clean") is None
    assert ids(streams.pending("clean")) == ["1/4"]


def test_own_lag_is_allowed_up_to_the_limit():
    streams = seirenes_streams(flush=1, capacity=9, max_lag=2, max_policy_lag=99, max_flushes=9)
    streams.begin_step()
    offer(streams, "clean", 1, 9)
    seen = []
    for _ in range(4):
        if streams.take("clean") is None:
            break
        streams.record_update("clean")
        seen.append(streams.counters()["clean"]["lag_max"])
    counters = streams.counters()["clean"]
    assert seen == [0, 1, 2]
    assert (counters["evicted_stale"], counters["pending"], counters["updates"]) == (6, 0, 3)
    assert counters["lag_mean"] == 1.0


def test_a_starved_stream_ages_with_the_policy():
    streams = seirenes_streams(flush=2, capacity=9, max_lag=3, max_policy_lag=2)
    streams.begin_step()
    offer(streams, "robust", 1, 1)
    for step in (2, 3):
        streams.begin_step()
        update(streams, "clean", step, 2)
        assert streams.take("robust") is None
        assert len(streams.pending("robust")) == 1
    streams.begin_step()
    update(streams, "clean", 4, 2)
    assert streams.take("robust") is None
    assert streams.counters()["robust"]["evicted_stale"] == 1
    assert streams.pending("robust") == ()


def test_policy_lag_of_what_was_trained_is_counted():
    streams = seirenes_streams(flush=2, capacity=9)
    streams.begin_step()
    offer(streams, "robust", 1, 1)
    update(streams, "clean", 1, 2)
    streams.begin_step()
    update(streams, "adversary", 2, 2)
    offer(streams, "robust", 2, 1)
    assert streams.take("robust") is not None
    counters = streams.counters()["robust"]
    assert (counters["lag_mean"], counters["lag_max"], counters["policy_lag_max"]) == (0.0, 0, 2)
    assert streams.policy_version == 2


def test_counters_have_the_promised_names_and_nulls():
    streams = seirenes_streams(flush=2)
    streams.begin_step()
    offer(streams, "clean", 1, 1, signal=False)
    counters = streams.counters()
    assert list(counters) == ["clean", "adversary", "robust"]
    assert counters["clean"] == {
        "candidates": 1,
        "zero_advantage": 1,
        "accepted": 0,
        "evicted_stale": 0,
        "evicted_overflow": 0,
        "pending": 0,
        "updates": 0,
        "updates_total": 0,
        "lag_mean": None,
        "lag_max": None,
        "policy_lag_max": None,
        "suspended": 0,
    }


def test_a_replay_is_refused():
    streams = seirenes_streams(flush=1)
    streams.begin_step()
    offer(streams, "clean", 2, 1)
    assert ids(streams.take("clean")) == ["2/0"]
    restored = seirenes_streams(flush=1)
    restored.load_state_dict(json.loads(json.dumps(streams.state_dict())))
    for again in (streams, restored):
        with pytest.raises(ValueError, match="group 2/0 of step 2 was offered before"):
            offer(again, "clean", 2, 1)
        with pytest.raises(ValueError, match="group 1/0 of step 1 was offered before"):
            offer(again, "clean", 1, 1)
        offer(again, "clean", 3, 1)


def test_what_cannot_be_is_refused():
    streams = seirenes_streams(flush=1)
    birth = Birth(1, 0, streams.update_counts())
    with pytest.raises(ValueError, match="of stream robust was offered to stream clean"):
        streams.offer("clean", [make_summary("1/3", "robust", birth)])
    with pytest.raises(ValueError, match="flush 3 must be at least 1 and at most the capacity, 2"):
        StreamQueue("clean", flush=3, capacity=2)
    with pytest.raises(ValueError, match="stored streams are clean; the game has clean, adversary, robust"):
        streams.load_state_dict(Streams(build_game("grpo")).state_dict())


def test_a_shrunk_capacity_evicts_at_the_next_arrival():
    wide, narrow = seirenes_streams(flush=1, capacity=9), seirenes_streams(flush=1, capacity=2)
    wide.begin_step()
    offer(wide, "clean", 1, 4)
    narrow.load_state_dict(wide.state_dict())
    offer(narrow, "clean", 2, 1)
    assert ids(narrow.pending("clean")) == ["1/3", "2/0"]
