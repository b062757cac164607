"""The schedule, step by step, with an engine whose every length is written down."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedEngine, ScriptedJudge, ScriptedRole, no_credit, three_stages

from megatron_seirenes.errors import DataError, SeirenesError
from megatron_seirenes.games.game import Ask, Game, Stage, live_stages
from megatron_seirenes.records import Problem
from megatron_seirenes.rollouts.engine import Completion
from megatron_seirenes.rollouts.requests import Drawing, queue_order, request_seed
from megatron_seirenes.rollouts.scheduler import CollectionStopped, RolloutScheduler

LENGTHS = {"R1": 30, "R2": 5, "R3": 10}


def problems(count):
    return [Problem(id=f"p{i}", question="what?", answer=str(i)) for i in range(count)]


def scheduler(game, engine, *, judge=None, roles=None, engines=None, **settings_):
    return RolloutScheduler(
        game,
        roles or {"reasoner": ScriptedRole(), "adversary": ScriptedRole()},
        engines or {"shared": engine},
        judge or ScriptedJudge(),
        settings_.pop("decode", lambda ids: f" text {ids[0]} \n"),
        run_seed=1,
        temperature=0.7,
        top_p=0.9,
        max_prompt_tokens=settings_.pop("max_prompt_tokens", 50),
        **settings_,
    )


def run(game, lengths, *, count=1, slots=10**9, step=3, **settings_):
    engine = ScriptedEngine(lengths if callable(lengths) else lambda request: lengths[request.stage], slots)
    spans = []
    bundles = scheduler(game, engine, on_span=spans.append, **settings_).collect(problems(count), step, game.stages)
    return engine, bundles, {span.request_id: span for span in spans}


def by_path(table):
    """A length per stage and path, so that rollouts of a stage can differ."""
    return lambda request: table[request.stage][request.path]


def test_everything_without_a_parent_is_submitted_at_once_short_stages_first():
    engine, _, _ = run(three_stages(), LENGTHS, count=2)
    at_start = [name for step, name in engine.log if step == 0]
    assert at_start == [f"3/{p}/{s}.{i}" for s in ("R2", "R1") for p in ("p0", "p1") for i in range(2)]


def test_a_hint_s_answers_start_the_step_after_it_ends_while_clean_answers_run():
    table = {"R1": {(0,): 30, (1,): 20}, "R2": {(0,): 5, (1,): 9}, "R3": {(a, b): 10 for a in (0, 1) for b in (0, 1)}}
    engine, _, spans = run(three_stages(), by_path(table))
    assert spans["3/p0/R2.0"].end_step == 5
    for name, start in (("R3.0.0", 5), ("R3.0.1", 5), ("R3.1.0", 9)):
        span = spans[f"3/p0/{name}"]
        assert (span.submit_step, span.end_step) == (start, start + 10)
        assert span.end_step < spans["3/p0/R1.1"].end_step
    assert engine.steps == 30


@pytest.mark.parametrize(("clean", "expected"), [(30, 30), (4, 9 + 12)])
def test_steps_equal_the_longest_path_and_with_a_barrier_the_paper_s(clean, expected):
    table = {
        "R1": {(0,): clean, (1,): 3},
        "R2": {(0,): 5, (1,): 9},
        "R3": {(0, 0): 14, (0, 1): 2, (1, 0): 12, (1, 1): 1},
    }
    streamed, _, _ = run(three_stages(), by_path(table))
    assert streamed.steps == expected == max(clean, 5 + 14, 9 + 12)
    held, _, spans = run(three_stages(), by_path(table), barrier=True)
    assert held.steps == max(clean, 9) + 14
    assert {span.submit_step for span in spans.values() if span.stage == "R3"} == {max(clean, 9)}


def test_the_barrier_waits_for_the_whole_batch():
    lengths = {"p0": 5, "p1": 40}
    engine, _, spans = run(
        three_stages(), lambda r: lengths[r.problem_id] if r.stage == "R1" else 6, count=2, barrier=True
    )
    assert {span.submit_step for span in spans.values() if span.stage == "R3"} == {40}
    assert engine.steps == 46


def test_bundles_hold_every_rollout_by_path_with_verdicts_text_and_version():
    _, bundles, _ = run(three_stages(clean=3, hints=2, answers=2), LENGTHS, count=2)
    assert [bundle.problem.id for bundle in bundles] == ["p0", "p1"]
    bundle = bundles[1]
    assert [rollout.request.path for rollout in bundle.of_stage("R1")] == [(0,), (1,), (2,)]
    assert [rollout.request.path for rollout in bundle.of_stage("R3")] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert set(bundle.verdicts) == {rollout.id for stage in ("R1", "R3") for rollout in bundle.of_stage(stage)}
    hint = bundle.of_stage("R2")[1]
    answers = bundle.children("R3", hint)
    assert [rollout.id for rollout in answers] == ["3/p1/R3.1.0", "3/p1/R3.1.1"]
    assert hint.text == f"text {hint.response_ids[0]}"
    assert "".join(map(chr, answers[0].request.prompt_ids)) == f"what?{hint.text}"
    assert answers[0].policy_version == 7
    assert answers[0].request.sampling.temperature == 0.7
    assert (answers[0].request.sampling.max_tokens, hint.request.sampling.max_tokens) == (100, 20)


def test_a_truncated_hint_is_used_as_it_stands():
    _, bundles, _ = run(three_stages(), {"R1": 30, "R2": 20, "R3": 10})
    assert all(hint.truncated for hint in bundles[0].of_stage("R2"))
    assert len(bundles[0].of_stage("R3")) == 4


def test_a_refused_hint_has_a_reason_and_no_children():
    seeds = [request_seed(Drawing(1, 3, 0.7, 0.9), "shared", "p0", ("R2",), (i,)) for i in range(2)]
    refuse = ScriptedRole(lambda text: "says nothing" if text == f"text {seeds[0] % 1000}" else None)
    _, bundles, _ = run(three_stages(), LENGTHS, roles={"reasoner": ScriptedRole(), "adversary": refuse})
    assert bundles[0].refused == {"3/p0/R2.0": "says nothing"}
    assert [rollout.request.path for rollout in bundles[0].of_stage("R3")] == [(1, 0), (1, 1)]


def test_an_empty_hint_has_no_children_and_is_not_refused():
    engine = ScriptedEngine(lambda request: LENGTHS[request.stage])
    asked = []
    roles = {"reasoner": ScriptedRole(), "adversary": ScriptedRole(lambda text: asked.append(text))}
    decode = lambda ids: " \n" if len(ids) == LENGTHS["R2"] else "answer"  # noqa: E731
    game = three_stages()
    bundles = scheduler(game, engine, roles=roles, decode=decode).collect(problems(1), 3, game.stages)
    assert bundles[0].of_stage("R3") == ()
    assert not bundles[0].refused
    assert asked == []


def test_a_hint_that_makes_the_prompt_too_long_is_refused_and_a_long_question_is_a_fault_of_the_data():
    _, bundles, _ = run(three_stages(), LENGTHS, max_prompt_tokens=7)
    assert set(bundles[0].refused) == {"3/p0/R2.0", "3/p0/R2.1"}
    assert "of 7 allowed" in bundles[0].refused["3/p0/R2.0"]
    assert bundles[0].of_stage("R3") == ()
    with pytest.raises(DataError, match=r"problem p0.*5 tokens.*allows 4"):
        run(three_stages(), LENGTHS, max_prompt_tokens=4)


def test_seeds_depend_on_policy_step_problem_and_every_index_and_on_nothing_else():
    _, first, _ = run(three_stages(), LENGTHS, count=3)
    _, again, _ = run(three_stages(), {"R1": 2, "R2": 17, "R3": 3}, count=2, barrier=True)
    seeds = {r.id: r.request.seed for b in first for rollouts in b.rollouts.values() for r in rollouts}
    assert len(set(seeds.values())) == len(seeds) == 3 * (2 + 2 + 4)
    for bundle in again:
        for rollouts in bundle.rollouts.values():
            assert all(seeds[rollout.id] == rollout.request.seed for rollout in rollouts)
    _, later, _ = run(three_stages(), LENGTHS, step=4)
    assert later[0].of_stage("R3")[0].request.seed not in seeds.values()


def test_suspended_stages_are_not_run():
    game = three_stages()
    engine = ScriptedEngine(lambda request: LENGTHS[request.stage])
    live = live_stages(game, frozenset({"adversary", "robust"}))
    bundle = scheduler(game, engine).collect(problems(1), 3, live)[0]
    assert {request.stage for request in engine.submitted} == {"R1"}
    assert bundle.of_stage("R3") == ()
    live = live_stages(game, frozenset({"clean", "adversary"}))
    engine = ScriptedEngine(lambda request: LENGTHS[request.stage])
    scheduler(game, engine).collect(problems(1), 3, live)
    assert {request.stage for request in engine.submitted} == {"R2", "R3"}


@pytest.mark.parametrize("barrier", [False, True])
def test_what_is_submitted_never_depends_on_the_judge(barrier):
    runs = [
        run(three_stages(), LENGTHS, count=3, slots=4, judge=ScriptedJudge(delay), barrier=barrier)
        for delay in (0, 1000)
    ]
    assert runs[0][0].log == runs[1][0].log
    assert runs[0][1] == runs[1][1]


def test_verdicts_are_collected_while_generating():
    seen = []
    run(three_stages(), LENGTHS, on_progress=seen.append)
    at_hinted_end = next(progress for progress in seen if progress.engine_steps == 15)
    assert at_hinted_end.judged == 4
    assert seen[-1].judged == 6
    assert seen[-1].finished == seen[-1].submitted == 8
    assert seen[-1].tokens == 2 * 30 + 2 * 5 + 4 * 10


def test_stop_drops_everything_and_leaks_nothing_into_the_next_collection():
    game, stop = three_stages(), []
    engine, judge = ScriptedEngine(lambda request: LENGTHS[request.stage]), ScriptedJudge(delay=1000)
    walker = scheduler(game, engine, judge=judge, should_stop=lambda: engine.steps == 16 and not stop)
    with pytest.raises(CollectionStopped, match="16 engine steps"):
        walker.collect(problems(1), 3, game.stages)
    stop.append(True)
    assert not engine.has_unfinished()
    assert not judge.pending
    bundle = walker.collect(problems(1), 4, game.stages)[0]
    assert {key.split("/")[0] for key in bundle.verdicts} == {"4"}


def test_an_engine_that_drops_a_request_unasked_is_an_error():
    game = three_stages()
    engine = ScriptedEngine(lambda request: LENGTHS[request.stage])
    engine._complete = lambda request: Completion(request.id, (), (), "abort")
    with pytest.raises(SeirenesError, match=r"3/p0/R2\.0"):
        scheduler(game, engine).collect(problems(1), 3, game.stages)


def test_two_policies_are_stepped_together_in_a_fixed_order():
    game = Game(
        name="two",
        stages=(
            Stage("A", "reasoner", samples=2, max_tokens=50, policy="student"),
            Stage("B", "adversary", samples=1, max_tokens=50, policy="coach", parent="A"),
        ),
        streams=(),
        credit=no_credit,
        mastered=lambda bundle: None,
        clean_stage="A",
    )
    engines = {name: ScriptedEngine(lambda request: {"A": 4, "B": 3}[request.stage]) for name in ("student", "coach")}
    spans = []
    walker = scheduler(game, None, engines=engines, on_span=spans.append)
    bundle = walker.collect(problems(1), 3, game.stages)[0]
    assert [rollout.request.path for rollout in bundle.of_stage("B")] == [(0, 0), (1, 0)]
    assert {(span.stage, span.submit_step, span.end_step) for span in spans} == {("A", 0, 4), ("B", 4, 7)}
    assert engines["coach"].steps == 3


def test_an_expansion_may_score_given_tokens():
    slices = lambda parent, problem: [Ask({"hint": part}, (1, 2)) for part in parent.text.split()]  # noqa: E731
    _, bundles, _ = run(three_stages(answers=1, expand=slices), LENGTHS)
    scored = bundles[0].of_stage("R3")
    assert [rollout.request.path for rollout in scored] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(rollout.request.given_ids == (1, 2) for rollout in scored)
    assert "".join(map(chr, scored[0].request.prompt_ids)) == "what?text"


def test_two_problems_with_one_id_are_refused():
    game = three_stages()
    with pytest.raises(ValueError, match="share an id"):
        scheduler(game, ScriptedEngine(lambda request: 1)).collect([*problems(1), *problems(1)], 3, game.stages)


def test_queue_order_keeps_ties():
    stages = [Stage(name, "r", 1, limit) for name, limit in (("a", 9), ("b", 3), ("c", 9), ("d", 3))]
    assert [stage.name for stage in queue_order(stages)] == ["b", "d", "a", "c"]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 4), slots=st.integers(1, 12))
def test_streaming_never_takes_longer_than_the_barrier_whatever_the_lengths_and_slots(data, count, slots):
    table: dict[str, int] = {}

    def length(request):
        if request.id not in table:
            table[request.id] = data.draw(st.integers(1, 12), label=request.id)
        return table[request.id]

    streamed, bundles, spans = run(three_stages(), length, count=count, slots=slots)
    held, held_bundles, held_spans = run(three_stages(), length, count=count, slots=slots, barrier=True)
    assert streamed.steps <= held.steps
    assert all(spans[name].end_step <= held_spans[name].end_step for name in spans)
    assert bundles == held_bundles


class StuckEngine(ScriptedEngine):
    """Returns from its steps without a token after `moves` of them, until its requests were aborted `tries` times."""

    def __init__(self, length, moves, tries=1):
        super().__init__(length)
        self.moves, self.tries = moves, tries

    def step(self):
        if self.steps < self.moves or not self.tries:
            return super().step()
        self.steps += 1
        return []

    def abort(self, request_ids):
        self.tries -= 1
        super().abort(request_ids)


def test_generation_that_does_not_move_is_asked_again_the_same():
    whole, expected, _ = run(three_stages(), LENGTHS, count=2)
    engine, said = StuckEngine(lambda request: LENGTHS[request.stage], moves=7), []
    driver = scheduler(three_stages(), engine, stalled_steps=10, max_regenerations=1, on_stall=said.append)
    assert driver.collect(problems(2), 3, three_stages().stages) == expected
    assert driver.regenerations == 1 and "no token in 10 engine steps" in said[0]
    again = engine.submitted[-(len(engine.submitted) - len(whole.submitted)) :]
    assert {request.id for request in again} <= {request.id for request in whole.submitted}
    engine.moves = 10**9
    driver.collect(problems(2), 4, three_stages().stages)
    assert driver.regenerations == 0


def test_generation_that_never_moves_ends_with_a_message():
    engine = StuckEngine(lambda request: 3, moves=0, tries=10)
    driver = scheduler(three_stages(), engine, stalled_steps=5, max_regenerations=2)
    with pytest.raises(SeirenesError, match=r"step 3: no token in 5 engine steps although 4 requests run.* 2 times"):
        driver.collect(problems(1), 3, three_stages().stages)


@pytest.mark.parametrize("after", [1, 2, 3, 7])
def test_generation_that_moves_is_never_asked_again(after):
    _, expected, _ = run(three_stages(), LENGTHS, count=2, slots=3)
    engine = ScriptedEngine(lambda request: LENGTHS[request.stage], slots=3)
    driver = scheduler(three_stages(), engine, stalled_steps=after)
    assert driver.collect(problems(2), 3, three_stages().stages) == expected


def test_each_judged_answer_is_reported_from_hand_over_to_verdict():
    judged, times = [], iter(range(10_000))
    walker = scheduler(
        three_stages(),
        ScriptedEngine(lambda request: LENGTHS[request.stage]),
        judge=ScriptedJudge(delay=2),
        clock=lambda: float(next(times)),
        on_judged=judged.append,
    )
    (bundle,) = walker.collect(problems(1), 3, three_stages().stages)
    assert sorted(span.request_id for span in judged) == sorted(bundle.verdicts)
    assert {span.stage for span in judged} == {"R1", "R3"}
    assert all(span.end_seconds > span.start_seconds for span in judged)
