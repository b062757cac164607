"""Credit of the Seirênes game against exact fractions, and that it depends on nothing but the bundle."""

from __future__ import annotations

import dataclasses
import math
import statistics
from fractions import Fraction

import pytest
from bundle_maker import BIRTH, Hint, make_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.games.credit import CreditRules
from megatron_seirenes.games.registry import StreamOverrides, build_game

LIGHT = settings(max_examples=60, deadline=None)


def game_of(g1: int, g2: int, g3: int, rules: CreditRules | None = None, streams=None):
    stages = {"R1": (g1, None), "R2": (g2, None), "R3": (g3, None)}
    return build_game("seirenes", stages=stages, rules=rules, streams=streams)


def verdicts(size: int):
    return st.lists(st.booleans(), min_size=size, max_size=size)


@st.composite
def played(draw):
    """A game and a bundle of it in which hints may be refused or empty."""
    g1, g2, g3 = draw(st.integers(1, 8)), draw(st.integers(1, 3)), draw(st.integers(1, 8))
    hint = st.one_of(
        verdicts(g3).map(lambda right: Hint(right=right)),
        st.just(Hint(refused=True)),
        st.just(Hint(text="")),
    )
    return game_of(g1, g2, g3), draw(verdicts(g1)), draw(st.lists(hint, min_size=g2, max_size=g2))


def test_a_bundle_worked_by_hand():
    bundle = make_bundle([True, True, True, False], [Hint(right=[True, False, False, False]), Hint(right=[True] * 4)])
    credit = game_of(4, 2, 4).credit(bundle, BIRTH)

    (clean,) = credit["clean"]
    assert (clean.id, clean.problem_id, clean.stream, clean.stage) == ("3/p7/R1", "p7", "clean", "R1")
    assert clean.rewards == (1.0, 1.0, 1.0, 0.0)
    assert clean.advantages == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-5)  # std of 1,1,1,0 with n - 1 is 0.5
    assert clean.birth == BIRTH

    first, second = credit["adversary"]
    assert [first.id, second.id] == ["3/p7/R2/0", "3/p7/R2/1"]
    assert first.rewards == first.advantages == (0.5,)
    assert second.rewards == second.advantages == (-0.25,)
    assert [rollout.id for rollout in second.rollouts] == ["R2/1"]

    hard, easy = credit["robust"]
    assert [hard.id, easy.id] == ["3/p7/R3/0", "3/p7/R3/1"]
    assert [rollout.id for rollout in hard.rollouts] == ["R3/0/0", "R3/0/1", "R3/0/2", "R3/0/3"]
    assert hard.has_signal
    assert not easy.has_signal
    assert easy.advantages == (0.0,) * 4


@LIGHT
@given(played())
def test_hint_reward_is_equation_11_within_its_bounds(case):
    game, clean, hints = case
    adversary = {group.rollouts[0].id: group for group in game.credit(make_bundle(clean, hints), BIRTH)["adversary"]}
    p = Fraction(sum(clean), len(clean))
    for k, hint in enumerate(hints):
        group = adversary.pop(f"R2/{k}", None)
        if hint.refused:
            assert group.rewards == group.advantages == (-0.25,)
            assert group.has_signal
        elif not hint.right:
            assert group is None
        else:
            gap = p - Fraction(sum(hint.right), len(hint.right))
            assert group.rewards == group.advantages == (pytest.approx(float(gap), abs=1e-12),)
            assert -(1 - p) <= gap <= p
            assert -(1 - float(p)) - 1e-12 <= group.rewards[0] <= float(p) + 1e-12
            assert group.has_signal == (gap != 0) == (group.rewards[0] != 0)
    assert not adversary


@LIGHT
@given(played())
def test_answers_are_credited_against_their_own_prompt_only(case):
    game, clean, hints = case
    credit = game.credit(make_bundle(clean, hints), BIRTH)
    expected = [clean, *(hint.right for hint in hints if hint.right)]
    groups = [*credit["clean"], *credit["robust"]]
    assert len(groups) == len(expected)
    for group, right in zip(groups, expected, strict=True):
        assert group.rewards == tuple(map(float, right))
        assert math.fsum(group.advantages) == pytest.approx(0.0, abs=1e-9)
        assert group.has_signal == (0 < sum(right) < len(right)) == any(group.advantages)
        if group.has_signal:
            mean, std = statistics.mean(map(float, right)), statistics.stdev(map(float, right))
            assert group.advantages == pytest.approx([(float(x) - mean) / (std + 1e-6) for x in right], abs=1e-12)


@LIGHT
@given(played(), st.randoms(use_true_random=False))
def test_order_of_samples_does_not_matter(case, random):
    game, clean, hints = case
    order = list(range(len(clean)))
    random.shuffle(order)
    shuffled_hints = [
        dataclasses.replace(hint, right=random.sample(list(hint.right), len(hint.right))) for hint in hints
    ]
    before = game.credit(make_bundle(clean, hints), BIRTH)
    after = game.credit(make_bundle([clean[i] for i in order], shuffled_hints), BIRTH)
    assert after["clean"][0].advantages == tuple(before["clean"][0].advantages[i] for i in order)
    assert [group.advantages for group in after["adversary"]] == [group.advantages for group in before["adversary"]]
    for stream in before:
        assert [group.has_signal for group in after[stream]] == [group.has_signal for group in before[stream]]
        assert [group.id for group in after[stream]] == [group.id for group in before[stream]]


@LIGHT
@given(played())
def test_a_stream_gets_the_same_groups_when_stages_of_others_were_not_run(case):
    game, clean, hints = case
    everything = game.credit(make_bundle(clean, hints), BIRTH)
    clean_only = game.credit(make_bundle(clean), BIRTH)
    hinted_only = game.credit(make_bundle(None, hints), BIRTH)
    assert clean_only == {"clean": everything["clean"], "adversary": [], "robust": []}
    assert hinted_only == {"clean": [], "adversary": [], "robust": everything["robust"]}


def test_a_refused_hint_earns_the_penalty_of_its_role_and_nothing_else():
    bundle = make_bundle([True, False], [Hint(refused=True), Hint(refused=True)])
    rules = CreditRules(gate_penalties={"adversary": -0.7, "reasoner": -9.0})
    credit = game_of(2, 2, 2, rules).credit(bundle, BIRTH)
    assert [group.advantages for group in credit["adversary"]] == [(-0.7,), (-0.7,)]
    assert credit["robust"] == []
    free = game_of(2, 2, 2, CreditRules(gate_penalties={"adversary": 0.0})).credit(bundle, BIRTH)
    assert [group.has_signal for group in free["adversary"]] == [False, False]


def test_a_refused_answer_earns_the_penalty_and_counts_as_wrong():
    bundle = make_bundle([True, True], [Hint(right=[True, True])])
    bundle = dataclasses.replace(bundle, refused={"R1/1": "no"})
    credit = game_of(2, 1, 2, CreditRules(gate_penalties={"reasoner": -1.0})).credit(bundle, BIRTH)
    assert credit["clean"][0].rewards == (1.0, -1.0)
    assert credit["adversary"][0].rewards == (-0.5,)


def test_a_truncated_hint_is_used_as_it_stands():
    bundle = make_bundle([True, True], [Hint(right=[False, True], finish_reason="length")])
    assert game_of(2, 1, 2).credit(bundle, BIRTH)["adversary"][0].rewards == (0.5,)


def test_what_is_incomplete_is_refused():
    game = game_of(2, 1, 2)
    bundle = make_bundle([True, False], [Hint(right=[True, False])])
    for lost in ("R1/0", "R3/0/1"):
        kept = {key: verdict for key, verdict in bundle.verdicts.items() if key != lost}
        with pytest.raises(ValueError, match=f"{lost} has no verdict"):
            game.credit(dataclasses.replace(bundle, verdicts=kept), BIRTH)
    with pytest.raises(ValueError, match="1 rollouts of R1, 2 expected"):
        game.credit(make_bundle([True], [Hint(right=[True, False])]), BIRTH)
    with pytest.raises(ValueError, match="0 rollouts of R3 under hint R2/0, 2 expected"):
        game.credit(make_bundle([True, False], [Hint(right=[])]), BIRTH)
    with pytest.raises(ValueError, match="2 rollouts of R2, 1 expected"):
        game.credit(make_bundle([True, False], [Hint(right=[True, False])] * 2), BIRTH)
    with pytest.raises(ValueError, match="must have no answers"):
        game.credit(make_bundle([True, False], [Hint(right=[True, False], refused=True)]), BIRTH)


def test_a_disabled_stream_is_left_out_and_the_others_stay_the_same():
    bundle = make_bundle([True, False], [Hint(right=[True, False])])
    without = game_of(2, 1, 2, streams={"adversary": StreamOverrides(enabled=False)}).credit(bundle, BIRTH)
    full = game_of(2, 1, 2).credit(bundle, BIRTH)
    assert without == {"clean": full["clean"], "robust": full["robust"]}


def test_centered_advantages_are_an_option():
    bundle = make_bundle([True, False, False, False], [Hint(right=[True])])
    credit = game_of(4, 1, 1, CreditRules(advantage="centered")).credit(bundle, BIRTH)
    assert credit["clean"][0].advantages == (0.75, -0.25, -0.25, -0.25)
