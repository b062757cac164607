"""Shares, balance and moves: every item is somewhere once, and what travels is what was asked for."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_ranks import run_ranks

from megatron_seirenes.trainer.ranks import Places
from megatron_seirenes.trainer.sharing import Move, balance, deliver, scoring_parts, share_of


@given(st.lists(st.integers()), st.integers(1, 9))
def test_shares_joined_are_the_batch(batch, replicas):
    shares = [share_of(batch, replica, replicas) for replica in range(replicas)]
    assert [item for share in shares for item in share] == batch
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 1000), max_size=60), st.integers(1, 8))
def test_balance_places_each_once_and_nearly_evenly(costs, parts):
    lists = balance(costs, parts)
    assert sorted(index for members in lists for index in members) == list(range(len(costs)))
    assert all(members == sorted(members) for members in lists)
    loads = [sum(costs[index] for index in members) for members in lists]
    assert max(loads) - min(loads) <= max(costs, default=0)
    assert balance(costs, parts) == lists


def test_scoring_stays_with_the_ranks_of_the_replica():
    places = Places(2, (0, 1, 2, 3))
    chosen = scoring_parts(places, [[5.0, 1.0, 4.0], [1.0, 1.0]])
    assert set(chosen[0]) <= {0, 1} and set(chosen[1]) == {2, 3}
    assert scoring_parts(Places(1, (0, 0)), [[1.0], [1.0]]) == [[0], [0]]


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_every_taker_has_it_and_nobody_sends_what_is_there(seed, size):
    draw = random.Random(seed)
    ranks = range(size)
    moves = [
        Move(
            f"key{number}",
            tuple(sorted(draw.sample(ranks, draw.randint(1, size)))),
            tuple(sorted(draw.sample(ranks, draw.randint(1, size)))),
        )
        for number in range(draw.randint(0, 9))
    ]

    def program(rank):
        held = {move.key: f"{move.key} payload" for move in moves if rank.rank in move.holders}
        return deliver(rank, moves, held), rank.moved

    for rank, (received, moved) in enumerate(run_ranks(Places(1, tuple(ranks)), program)):
        assert list(received) == [move.key for move in moves if rank in move.takers]
        assert all(value == f"{key} payload" for key, value in received.items())
        sends = any(rank == m.source(t) != t for m in moves for t in m.takers)
        assert bool(moved) == sends


def test_holders_share_the_sending():
    move = Move("x", (0, 1), (2, 3))
    assert [move.source(taker) for taker in move.takers] == [0, 1]
    with pytest.raises(IndexError):
        share_of([1], 0, 1)[1]
