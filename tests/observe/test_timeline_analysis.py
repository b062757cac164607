from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.observe.timeline import Event, Span, Timeline, TimelineFile
from megatron_seirenes.observe.timeline_analysis import Spans, analyse_events, analyse_timeline, covered


def step_events(timeline: Timeline, at: float) -> list[Event]:
    """One step of 20 s: R1 0–6, R2 0–7, R3 7–10 after a gap-free hand-over, judged until 12; training 12–18."""
    timeline.add("rollout", "phase", at, at + 12, "trainer")
    timeline.add("scoring", "phase", at + 12, at + 14, "trainer")
    timeline.add("training clean", "phase", at + 14, at + 18, "trainer")
    timeline.add("sync", "phase", at + 18, at + 20, "trainer")
    lives = {"R1": [(0, 6), (0, 2)], "R2": [(0, 3), (0, 7)], "R3": [(3, 5), (7, 10)]}
    for stage, times in lives.items():
        spans = [Span(f"{stage} x", at + start, at + end, {"stage": stage}) for start, end in times]
        timeline.add_overlapping("rollout", "rollout", spans)
    judged = [Span("x", at + 6, at + 6.5, {"stage": "R1"}), Span("y", at + 10, at + 12, {"stage": "R3"})]
    timeline.add_overlapping("judging", "judging", judged)
    return timeline.drain()


def test_idle_shares_what_stages_add_and_judging_alone() -> None:
    timeline = Timeline(lambda: 0.0)
    events = [event for at in (100.0, 1000.0) for event in step_events(timeline, at)]
    found = analyse_events(events)
    assert found is not None and found.stages == ("R1", "R2", "R3")
    for step in found.steps:
        assert step.seconds == 20, "what lies between two steps counts nowhere"
        assert step.added == {"R1": 6, "R2": 1, "R3": 3}
        assert (step.engine_idle, step.trainer_idle) == (0.5, 0.7)
        assert (step.judging_alone, step.judging_share) == (2, 0.1)
    assert found.total.added == {"R1": 12, "R2": 2, "R3": 6}
    assert found.total.engine_idle == 0.5


def test_a_step_may_collect_in_several_rounds() -> None:
    timeline = Timeline(lambda: 0.0)
    timeline.add("rollout", "phase", 90.0, 100.0, "trainer")
    found = analyse_events(step_events(timeline, 100.0) + step_events(timeline, 200.0))
    assert found is not None
    assert [step.seconds for step in found.steps] == [30, 20]


def test_an_evaluation_keeps_the_engine_busy() -> None:
    timeline = Timeline(lambda: 0.0)
    timeline.add("evaluation", "phase", 120.0, 140.0, "trainer")
    found = analyse_events(step_events(timeline, 100.0))
    assert found is not None
    assert (found.total.seconds, found.total.engine_busy, found.total.added["R3"]) == (40, 30, 3)


def test_unfinished_rollouts_of_the_last_step() -> None:
    found = analyse_events(step_events(Timeline(lambda: 0.0), 50.0))
    assert found is not None
    at = {moment: index for index, moment in enumerate(found.moments)}
    assert (found.moments[0], found.moments[-1]) == (0.0, 12.0)
    assert [found.running[stage][0] for stage in found.stages] == [2, 2, 0]
    later = min(at, key=lambda moment: abs(moment - 4))
    assert [found.running[stage][at[later]] for stage in found.stages] == [1, 1, 1]
    assert [found.running[stage][-1] for stage in found.stages] == [0, 0, 0]


def test_ranks_are_told_apart_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    file = TimelineFile(tmp_path / "timeline.json")
    file.append(step_events(Timeline(lambda: 0.0, rank=0), 0.0))
    file.append(step_events(Timeline(lambda: 0.0, rank=1), 3.0))
    with file.path.open("ab") as torn:
        torn.write(b',\n{"name": "R1')
    for rank in (0, 1):
        found = analyse_timeline(file.path, rank)
        assert found is not None and len(found.steps) == 1
    assert analyse_timeline(file.path, rank=2) is None


def test_a_trace_of_before_stages_were_named_can_be_read() -> None:
    events = step_events(Timeline(lambda: 0.0), 0.0)
    for event in events:
        event["args"].pop("stage", None)
    found = analyse_events(event for event in events if event.get("cat") != "judging")
    assert found is not None and sorted(found.stages) == ["R1", "R2", "R3"]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12))
def test_covered_counts_each_second_once(pairs: list[tuple[int, int]]) -> None:
    spans = Spans(np.array([float(a) for a, _ in pairs]), np.array([float(a + length) for a, length in pairs]))
    seconds = {second for start, length in pairs for second in range(start, start + length)}
    assert covered(spans) == pytest.approx(len(seconds))
