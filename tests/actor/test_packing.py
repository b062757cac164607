"""Packing: whole sequences within a budget, the same every time, and even."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.actor.packing import pack


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 50))
def test_every_sequence_is_in_one_bin_within_the_budget(lengths: list[int], budget: int) -> None:
    bins = pack(lengths, budget)
    assert sorted(index for members in bins for index in members) == list(range(len(lengths)))
    for members in bins:
        tokens = sum(lengths[index] for index in members)
        assert tokens <= budget or len(members) == 1
        assert members == sorted(members)
    assert bins == sorted(bins)
    assert bins == pack(list(lengths), budget)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.integers(20, 80))
def test_bins_are_few(lengths: list[int], budget: int) -> None:
    # First-fit decreasing never needs more than 11/9 of the fewest bins and one more; the tokens need sum / budget.
    fewest = -(-sum(lengths) // budget)
    assert len(pack(lengths, budget)) <= 2 * fewest
    if sum(lengths) <= budget:
        assert pack(lengths, budget) == [list(range(len(lengths)))]


def test_bins_are_even() -> None:
    assert pack([6, 4, 3, 2, 1], 10) == [[0, 3], [1, 2, 4]]
    bins = pack([10] * 9, 40)
    assert [len(members) for members in bins] == [3, 3, 3]


def test_an_overlong_sequence_stands_alone() -> None:
    assert pack([3, 50, 3], 10) == [[0, 2], [1]]


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="budget of 0"):
        pack([1], 0)
    with pytest.raises(ValueError, match="sequence of 0 tokens"):
        pack([3, 0], 10)
