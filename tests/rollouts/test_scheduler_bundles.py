"""Bundles are handed over as soon as they are complete, once each, and are those that the collection returns."""

from __future__ import annotations

import pytest
from scripted import ScriptedEngine, ScriptedJudge, ScriptedRole, three_stages

from megatron_seirenes.records import Bundle, Problem
from megatron_seirenes.rollouts.scheduler import RolloutScheduler

PROBLEMS = [Problem(f"p{n}", f"q{n}", "1") for n in range(3)]


def collect(refuse=lambda text: None, delay: int = 0) -> tuple[list[tuple[int, Bundle]], list[Bundle], int]:
    """(engine step, bundle) as they were handed over, the collection's bundles, and its engine steps."""
    engine = ScriptedEngine(lambda request: 2 + 3 * int(request.problem_id[1:]) + sum(request.path))
    handed: list[tuple[int, Bundle]] = []
    game = three_stages()
    scheduler = RolloutScheduler(
        game,
        {"reasoner": ScriptedRole(), "adversary": ScriptedRole(refuse)},
        {"shared": engine},
        ScriptedJudge(delay),
        lambda ids: "".join(map(chr, ids)),
        run_seed=0,
        temperature=1.0,
        top_p=1.0,
        max_prompt_tokens=100,
        on_bundle=lambda bundle: handed.append((engine.steps, bundle)),
    )
    return handed, scheduler.collect(PROBLEMS, 1, game.stages), engine.steps


@pytest.mark.parametrize("delay", [0, 3, 10_000])
def test_every_bundle_once_and_whole(delay):
    handed, bundles, _ = collect(delay=delay)
    assert sorted((bundle for _, bundle in handed), key=lambda bundle: bundle.problem.id) == bundles
    assert all(len(bundle.verdicts) == 2 + 4 for bundle in bundles)


def test_a_short_problem_is_handed_over_before_a_long_one_ends():
    handed, _, steps = collect()
    assert [bundle.problem.id for _, bundle in handed] == ["p0", "p1", "p2"]
    assert handed[0][0] < handed[1][0] < handed[2][0] <= steps


def test_a_refused_hint_leaves_nothing_to_wait_for():
    handed, bundles, _ = collect(refuse=lambda text: "no")
    assert len(handed) == 3
    assert all(len(bundle.refused) == 2 and len(bundle.verdicts) == 2 for bundle in bundles)
