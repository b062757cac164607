"""Shares of packed sequences: every position is held once, evenly, and padding keeps every rank in step."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.actor.batch import make_micro_batch
from megatron_seirenes.actor.context import ContextShare, whole_order
from megatron_seirenes.actor.sequences import TokenSequence

CPU = torch.device("cpu")


@given(st.integers(1, 60), st.integers(1, 5))
def test_shares_tile_a_sequence_evenly(length, size):
    shares = [ContextShare(rank, size) for rank in range(size)]
    padded = shares[0].padded(length)
    assert length <= padded < length + 2 * size
    held = [share.own(padded) for share in shares]
    assert sorted(position for own in held for position in own) == list(range(padded))
    assert len({len(own) for own in held}) == 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(1, 4))
def test_gathered_parts_come_back_in_order(lengths, size):
    shares = [ContextShare(rank, size) for rank in range(size)]
    padded = [shares[0].padded(length) for length in lengths]
    starts = [sum(padded[:index]) for index in range(len(padded))]
    places = list(zip(starts, padded, strict=True))
    parts = [start + position for share in shares for start, length in places for position in share.own(length)]
    assert torch.tensor(parts)[whole_order(padded, size, CPU)].tolist() == list(range(sum(padded)))


SIZES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), max_size=5)


@given(SIZES, st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_every_target_is_predicted_on_one_rank_from_the_token_before_it(sizes, size, alignment):
    sequences = [
        TokenSequence(tuple(range(100 * n, 100 * n + p)), tuple(range(100 * n + p, 100 * n + p + r)))
        for n, (p, r) in enumerate(sizes, start=1)
    ]
    slots: list[int] = []
    for rank in range(size):
        share = ContextShare(rank, size)
        batch = make_micro_batch(sequences, range(len(sequences)), alignment, CPU, share)
        assert batch.tokens.shape[1] % alignment == 0 and batch.tokens.shape[1] > 0
        assert batch.packed.cu_seqlens_q[-1] == size * batch.tokens.shape[1] == batch.positions.shape[1]
        own = range(len(batch.targets)) if batch.slots is None else batch.slots.tolist()
        before = batch.tokens[0, batch.rows].tolist()
        assert before == [batch.targets[slot].item() - 1 for slot in own]
        slots += own
    assert sorted(slots) == list(range(sum(r for _, r in sizes)))
