"""Weights of a flush: shares by hand, totals by formula, and what they refuse."""

from __future__ import annotations

import pytest
from flush_maker import make_flush, make_group
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.objectives.aggregation import group_shares, rollout_weights

LIGHT = settings(max_examples=60, deadline=None)


def hand_flush():
    """Two hints of question a and one of b, and a again in a later step."""
    return [
        make_group("1", "a", 1, [1, 3], [1.0, -1.0]),
        make_group("2", "b", 1, [2], [1.0]),
        make_group("3", "a", 1, [4], [1.0]),
        make_group("4", "a", 2, [5], [1.0]),
    ]


def test_shares_of_questions():
    assert group_shares(hand_flush(), "group") == [0.25] * 4
    assert group_shares(hand_flush(), "question") == pytest.approx([1 / 6, 1 / 3, 1 / 6, 1 / 3])


def test_sequence_mean():
    weights = rollout_weights(hand_flush(), "group", "sequence_mean")
    assert weights == [pytest.approx([1 / 8, 1 / 24]), [pytest.approx(1 / 8)], [pytest.approx(1 / 16)], [0.05]]
    weights = rollout_weights(hand_flush(), "question", "sequence_mean")
    assert weights[0] == pytest.approx([1 / 12, 1 / 36])


def test_token_mean_gives_every_token_of_the_flush_the_same():
    assert rollout_weights(hand_flush(), "group", "token_mean") == [[1 / 15] * 2, [1 / 15], [1 / 15], [1 / 15]]


def test_token_mean_under_question_balance_keeps_the_share_of_each_group():
    weights = rollout_weights(hand_flush(), "question", "token_mean")
    assert weights == [
        pytest.approx([1 / 24] * 2),
        [pytest.approx(1 / 6)],
        [pytest.approx(1 / 24)],
        [pytest.approx(1 / 15)],
    ]


def test_constant():
    assert rollout_weights(hand_flush(), "group", "constant", constant=10)[0] == [0.0125, 0.0125]
    for constant in (None, 0):
        with pytest.raises(ValueError, match="needs a positive number of tokens"):
            rollout_weights(hand_flush(), "group", "constant", constant=constant)


@LIGHT
@given(st.integers(0, 10_000), st.sampled_from(["group", "question"]), st.sampled_from(["sequence_mean", "token_mean"]))
def test_means_sum_to_one_over_the_tokens_of_a_flush(seed, balance, aggregation):
    groups = make_flush(seed)
    weights = rollout_weights(groups, balance, aggregation)
    total = sum(
        weight * len(rollout.response_ids)
        for group, group_weights in zip(groups, weights, strict=True)
        for rollout, weight in zip(group.rollouts, group_weights, strict=True)
    )
    assert total == pytest.approx(1.0)


def test_a_response_without_tokens_weighs_nothing_but_counts_in_its_group():
    groups = [make_group("1", "a", 1, [0, 2], [1.0, -1.0])]
    assert rollout_weights(groups, "group", "sequence_mean") == [[0.0, 0.25]]
    assert rollout_weights(groups, "group", "token_mean") == [[0.0, 0.5]]
    assert rollout_weights(groups, "question", "token_mean") == [[0.0, 0.5]]
    assert rollout_weights(groups, "group", "constant", constant=4) == [[0.0, 0.125]]
    assert rollout_weights([make_group("1", "a", 1, [0], [1.0])], "group", "token_mean") == [[0.0]]
