"""What the length of an answer does to its credit: the penalty, and leaving truncated answers out."""

from __future__ import annotations

import dataclasses

import pytest
from bundle_maker import BIRTH, make_bundle

from megatron_seirenes.games.credit import CreditRules
from megatron_seirenes.games.registry import build_game


def with_lengths(bundle, lengths):
    """The bundle with answers of these lengths under a limit of 8 tokens; one that reaches it is truncated."""
    answers = tuple(
        dataclasses.replace(
            rollout,
            response_ids=(3,) * length,
            behaviour_logprobs=(-0.5,) * length,
            finish_reason="length" if length == 8 else "stop",
        )
        for rollout, length in zip(bundle.of_stage("R1"), lengths, strict=True)
    )
    return dataclasses.replace(bundle, rollouts={"R1": answers})


def clean_group(right, lengths, **rules):
    game = build_game("grpo", stages={"R1": (len(right), 8)}, rules=CreditRules(**rules))
    (group,) = game.credit(with_lengths(make_bundle(right), lengths), BIRTH)["clean"]
    return group


def test_the_penalty_is_taken_off_the_reward():
    group = clean_group(
        [True, True, False, False], [4, 7, 6, 8], overlong_penalty=0.5, overlong_cache=4, advantage="centered"
    )
    assert group.rewards == pytest.approx([1.0, 1.0 - 0.375, -0.25, -0.5])
    mean = sum(group.rewards) / 4
    assert group.advantages == pytest.approx([reward - mean for reward in group.rewards])


def test_lengths_alone_are_no_signal():
    group = clean_group([True, True], [4, 8], overlong_penalty=0.5, overlong_cache=4)
    assert group.rewards == (1.0, 0.5)
    assert not group.has_signal


def test_filtered_answers_count_in_the_mean_and_are_not_trained_on():
    group = clean_group([True, False, False], [4, 8, 5], overlong_filter=True, advantage="centered")
    assert [rollout.id for rollout in group.rollouts] == ["R1/0", "R1/2"]
    assert group.rewards == (1.0, 0.0)
    assert group.advantages == pytest.approx([2 / 3, -1 / 3])
    assert group.has_signal


def test_a_group_of_which_nothing_is_left_has_no_signal():
    group = clean_group([True, False], [8, 8], overlong_filter=True)
    assert group.rollouts == ()
    assert not group.has_signal
