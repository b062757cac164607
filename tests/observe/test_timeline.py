import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.observe.timeline import Span, Timeline, TimelineFile, assign_slots, read_timeline, steady_clock


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def spans(events: list[dict]) -> list[dict]:
    return [event for event in events if event["ph"] == "X"]


def test_a_span_is_a_complete_event_of_its_rank() -> None:
    timeline = Timeline(Clock(), rank=3)
    with timeline.span("micro-batch 0", "train", "actor", tokens=7):
        pass
    (event,) = spans(timeline.drain())
    assert (event["name"], event["cat"], event["pid"], event["args"]) == ("micro-batch 0", "train", 3, {"tokens": 7})
    assert (event["ts"], event["dur"]) == (100_500_000, 500_000)


def test_a_span_that_ends_by_an_exception_is_kept() -> None:
    timeline = Timeline(Clock())
    with pytest.raises(RuntimeError), timeline.span("sync", "sync", "bridge"):
        raise RuntimeError
    assert len(spans(timeline.drain())) == 1


def test_tracks_and_ranks_are_named_once() -> None:
    timeline = Timeline(Clock(), rank=1)
    for _ in range(2):
        timeline.add("x", "train", 0.0, 1.0, "actor")
    names = [event["args"]["name"] for event in timeline.drain() if event["ph"] == "M" and "name" in event["args"]]
    assert names == ["rank 1", "actor"]
    timeline.add("x", "train", 1.0, 2.0, "actor")
    assert len(timeline.drain()) == 1


def test_a_track_has_the_same_thread_in_every_session() -> None:
    first, second = Timeline(Clock()), Timeline(Clock(), rank=1)
    first.add("x", "train", 0, 1, "actor")
    second.add("y", "sync", 0, 1, "bridge")
    second.add("x", "train", 0, 1, "actor")
    assert spans(first.drain())[0]["tid"] == spans(second.drain())[1]["tid"]


def test_memory_is_bounded_and_what_is_lost_is_told() -> None:
    timeline = Timeline(Clock(), limit=2)
    for index in range(5):
        timeline.add(str(index), "train", index, index + 1, "actor")
    events = timeline.drain()
    assert len(spans(events)) == 2
    assert events[-1]["name"].startswith("3 spans not kept")
    timeline.add("again", "train", 9, 10, "actor")
    assert len(timeline.drain()) == 1


def test_rollouts_lie_on_slots() -> None:
    timeline = Timeline(Clock())
    timeline.add_overlapping(
        "rollout", "slot", [Span("R1 q1", 0, 10), Span("R2 q1", 0, 4, {"k": 0}), Span("R3 q1", 4, 8)]
    )
    events = timeline.drain()
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[event["tid"]] for event in spans(events)] == ["slot 001", "slot 000", "slot 000"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=20
    )
)
def test_slots_never_overlap_and_are_as_few_as_possible(intervals: list[tuple[int, int]]) -> None:
    slots = assign_slots(intervals)
    together = Counter(
        (slot, time) for slot, (start, end) in zip(slots, intervals, strict=True) for time in range(start, end)
    )
    assert max(together.values(), default=1) == 1
    busiest = Counter(time for start, end in intervals for time in range(start, end))
    assert len(set(slots)) == max(busiest.values(), default=0)


def test_the_file_is_valid_json_after_every_append(tmp_path: Path) -> None:
    path = tmp_path / "run" / "timeline.json"
    timeline, file = Timeline(Clock()), TimelineFile(path)
    assert json.loads(path.read_text()) == []
    written: list[dict] = []
    for index in range(3):
        timeline.add(f"step {index}", "step", index, index + 1, "trainer")
        events = timeline.drain()
        file.append(events)
        written += events
        assert json.loads(path.read_text()) == written == read_timeline(path)
    file.append([])
    assert json.loads(path.read_text()) == written


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 700))
def test_a_kill_at_any_byte_loses_no_whole_event(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "timeline.json"
    events = [{"name": f"span {index}", "ph": "X", "ts": index} for index in range(10)]
    TimelineFile(path).append(events)
    content = path.read_bytes()
    path.write_bytes(content[:cut])
    lines = [json.dumps(event, separators=(",", ":")).encode() for event in events]
    whole = sum(content.index(line) + len(line) <= cut for line in lines)
    assert read_timeline(path) == events[:whole]
    file = TimelineFile(path)
    assert json.loads(path.read_text()) == events[:whole]
    file.append(events[whole:])
    assert json.loads(path.read_text()) == events


def test_opening_again_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    for index in range(3):
        TimelineFile(path).append([{"name": str(index), "ph": "X"}])
    assert [event["name"] for event in json.loads(path.read_text())] == ["0", "1", "2"]


def test_the_clock_never_runs_backwards() -> None:
    clock = steady_clock()
    first = clock()
    assert first > 1e9
    assert clock() >= first
