"""Options of Seirênes: the Adversary against its own hints, which hints are learned from, a memory of strong ones."""

from __future__ import annotations

import json

import pytest
from bundle_maker import BIRTH, PROBLEM, Hint, make_bundle

from megatron_seirenes.games.credit import CreditRules
from megatron_seirenes.games.memory import HintMemory
from megatron_seirenes.games.options import GameOptions, MemoryOptions
from megatron_seirenes.games.registry import StreamOverrides, build_game

STAGES = {"R1": (4, None), "R2": (3, None), "R3": (4, None)}
CLEAN = [True, True, True, False]
WEAK = Hint([True, True, True, True], text="weak")  # reward -1/4
STRONG = Hint([True, False, False, False], text="strong")  # reward 1/2
EQUAL = Hint([True, True, True, False], text="equal")  # reward 0


def game(rules=None, **options):
    return build_game("seirenes", stages=STAGES, rules=rules, options=GameOptions(**options))


def test_group_relative_credits_the_hints_of_a_question_against_each_other():
    played = game(adversary="group_relative", rules=CreditRules(advantage="centered"))
    (group,) = played.credit(make_bundle(CLEAN, [WEAK, STRONG, EQUAL]), BIRTH)["adversary"]
    assert group.id == "3/p7/R2"
    assert group.rewards == (-0.25, 0.5, 0.0)
    mean = 0.25 / 3
    assert group.advantages == pytest.approx([-0.25 - mean, 0.5 - mean, -mean])
    stream = played.stream("adversary")
    assert (stream.objective, stream.unit) == ("clipped", "groups")


def test_a_refused_hint_counts_in_the_group_with_its_penalty_and_an_empty_one_does_not():
    played = game(adversary="group_relative")
    bundle = make_bundle(CLEAN, [Hint(refused=True), Hint(text=""), EQUAL])
    (group,) = played.credit(bundle, BIRTH)["adversary"]
    assert group.rewards == (-0.25, 0.0)
    nothing = make_bundle(CLEAN, [Hint(text="")] * 3)
    assert played.credit(nothing, BIRTH)["adversary"] == []


def test_equal_hints_have_no_signal_against_each_other_though_each_has_a_reward():
    bundle = make_bundle(CLEAN, [STRONG, STRONG, STRONG])
    (group,) = game(adversary="group_relative").credit(bundle, BIRTH)["adversary"]
    assert not group.has_signal
    assert all(hint.has_signal for hint in game().credit(bundle, BIRTH)["adversary"])


@pytest.mark.parametrize(
    ("which", "chosen"), [("all", ["0", "1", "2"]), ("misleading", ["1"]), ("strongest", ["1"])]
)
def test_which_hints_enter_the_robust_update(which, chosen):
    played = game(robust_hints=which)
    groups = played.credit(make_bundle(CLEAN, [WEAK, STRONG, EQUAL]), BIRTH)["robust"]
    assert [group.id.rpartition("/")[2] for group in groups] == chosen
    assert ("R1" in played.stream("robust").needs) == (which == "misleading")


def test_a_strong_hint_is_shown_again_instead_of_new_ones_until_it_is_too_old():
    played = game(memory=MemoryOptions(max_age=2, min_delta=0.5))
    write, again = played.stage("R2").expand, played.stage("M3").expand
    assert (len(write(None, PROBLEM)), len(again(None, PROBLEM))) == (1, 0)
    bundle = make_bundle(CLEAN, [WEAK, STRONG, EQUAL])
    played.memory.remember([played.memory.note(bundle)])
    for step in (4, 5):
        played.memory.begin_step(step)
        assert write(None, PROBLEM) == ()
        assert [ask.context for ask in again(None, PROBLEM)] == [{"hint": "strong"}]
    played.memory.begin_step(6)
    assert (len(write(None, PROBLEM)), len(again(None, PROBLEM))) == (1, 0)
    assert "M3" in played.stream("robust").needs


def test_nothing_is_remembered_without_the_stream_that_learns_from_it():
    off = {"robust": StreamOverrides(enabled=False)}
    played = build_game("seirenes", streams=off, options=GameOptions(memory=MemoryOptions(max_age=2)))
    assert played.memory is None and [stage.name for stage in played.stages] == ["R1", "R2", "R3"]
    assert played.stage("R2").expand is None


def test_answers_under_remembered_hints_are_robust_groups_and_leave_mastery_open():
    played = game(memory=MemoryOptions(max_age=2))
    bundle = make_bundle([True] * 4)
    again = make_bundle(None, [Hint([True, False, True, True])])
    answers = tuple(again.of_stage("R3"))
    bundle = type(bundle)(
        PROBLEM, 3, {"R1": bundle.of_stage("R1"), "R2": (), "R3": (), "M3": answers}, bundle.verdicts | again.verdicts
    )
    (group,) = played.credit(bundle, BIRTH)["robust"]
    assert (group.stream, group.rewards) == ("robust", (1.0, 0.0, 1.0, 1.0))
    assert played.mastered(bundle) is None


def test_nothing_is_noted_without_a_strong_hint_or_without_clean_answers():
    memory = game(memory=MemoryOptions(max_age=2, min_delta=0.5)).memory
    assert memory.note(make_bundle(CLEAN, [WEAK, EQUAL, WEAK])) is None
    assert memory.note(make_bundle(None, [STRONG, STRONG, STRONG])) is None


def test_memory_survives_json_and_keeps_the_newest():
    options = MemoryOptions(max_age=9)
    memory = HintMemory(options, 2, lambda bundle, least: ())
    for step, hints in ((1, ["x", "y"]), (2, ["z"])):
        memory.remember([{"problem_id": "a", "step": step, "hints": hints}])
    other = HintMemory(options, 2, lambda bundle, least: ())
    other.load_state_dict(json.loads(json.dumps(memory.state_dict())))
    assert memory.recall("a") == other.recall("a") == ("y", "z")
    other.begin_step(11)
    assert other.recall("a") == ("z",)
