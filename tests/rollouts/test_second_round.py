"""Stages with a condition: asked after all else is judged, of those that meet it, however slow the judge."""

from __future__ import annotations

import pytest
from scripted import ScriptedEngine, ScriptedJudge, ScriptedRole, no_credit

from megatron_seirenes.games.game import Ask, Game, Stage, check_game
from megatron_seirenes.records import Bundle, Problem
from megatron_seirenes.rollouts.scheduler import CollectionStopped, RolloutScheduler


def odd(bundle: Bundle) -> bool:
    assert all(answer.id in bundle.verdicts for answer in bundle.of_stage("R1")), "the condition sees every verdict"
    return int(bundle.problem.id[1:]) % 2 == 1


def two_rounds(hint: str = "!") -> Game:
    expand = lambda parent, problem: (Ask({"hint": hint}),)  # noqa: E731
    return Game(
        name="two rounds",
        stages=(
            Stage("R1", "reasoner", samples=2, max_tokens=100),
            Stage("R3", "reasoner", samples=2, max_tokens=100, expand=expand, when=odd),
        ),
        streams=(),
        credit=no_credit,
        mastered=lambda bundle: None,
        clean_stage="R1",
    )


def run(game: Game, *, delay: int = 0, **settings):
    engine = ScriptedEngine(lambda request: 3 + request.path[0])
    seen: list[Bundle] = []
    scheduler = RolloutScheduler(
        game,
        {"reasoner": ScriptedRole()},
        {"shared": engine},
        ScriptedJudge(delay),
        lambda ids: f"text {ids[0]}",
        run_seed=1,
        temperature=1.0,
        top_p=1.0,
        max_prompt_tokens=10,
        on_bundle=seen.append,
        **settings,
    )
    return engine, scheduler.collect([Problem(f"p{i}", "what?", "1") for i in range(4)], 3, game.stages), seen


def test_it_is_asked_last_and_only_where_the_condition_holds():
    engine, bundles, _ = run(two_rounds())
    assert [len(bundle.of_stage("R3")) for bundle in bundles] == [0, 2, 0, 2]
    first = [step for step, name in engine.log if "/R1." in name]
    second = [step for step, name in engine.log if "/R3." in name]
    assert set(first) == {0}
    assert set(second) == {4}  # the longest answer of the first round takes four steps
    assert all(answer.id in bundle.verdicts for bundle in bundles for answer in bundle.of_stage("R3"))


def test_a_slow_judge_changes_nothing():
    engine, bundles, _ = run(two_rounds())
    slow_engine, slow_bundles, _ = run(two_rounds(), delay=100)
    assert (engine.log, bundles) == (slow_engine.log, slow_bundles)


def test_every_bundle_is_reported_once_and_whole():
    _, bundles, seen = run(two_rounds())
    assert sorted(bundle.problem.id for bundle in seen) == ["p0", "p1", "p2", "p3"]
    assert {bundle.problem.id: bundle for bundle in seen} == {bundle.problem.id: bundle for bundle in bundles}


def test_an_asking_that_is_too_long_is_left_out():
    engine, bundles, seen = run(two_rounds(hint="!" * 20))
    assert all(bundle.of_stage("R3") == () for bundle in bundles)
    assert len(engine.submitted) == 8
    assert len(seen) == 4


def test_it_stops_in_the_second_round_too():
    asked = iter(range(100))
    with pytest.raises(CollectionStopped, match="stopped after 5 engine steps"):
        run(two_rounds(), should_stop=lambda: next(asked) == 5)


def test_a_condition_and_a_parent_do_not_go_together():
    stages = (*two_rounds().stages, Stage("R4", "reasoner", 1, 5, parent="R1", when=odd))
    with pytest.raises(ValueError, match="both a parent and a condition"):
        check_game(Game("g", stages, (), no_credit, lambda bundle: None, "R1"))
