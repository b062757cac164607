"""Micro-batches that are filled up: what is added is padding, and what was there stays where it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from actor_samples import training_sequences

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.batch import filled_up, make_micro_batch
from megatron_seirenes.actor.context import ContextShare

CPU = torch.device("cpu")


@pytest.mark.parametrize("share", [ContextShare(), ContextShare(0, 2), ContextShare(1, 2)])
def test_what_is_filled_up_is_padding_behind_the_rest(share: ContextShare) -> None:
    batch = make_micro_batch(training_sequences(), range(3), 1, CPU, share)
    own = batch.tokens.shape[1]
    filled = filled_up(batch, own + 6, share)
    assert torch.equal(filled.tokens[:, :own], batch.tokens) and torch.equal(filled.padding[:, :own], batch.padding)
    assert filled.tokens.shape == (1, own + 6) and filled.padding[:, own:].all()
    lengths = filled.packed.cu_seqlens_q.diff().tolist()
    assert lengths == [*batch.packed.cu_seqlens_q.diff().tolist(), 6 * share.size]
    assert filled.positions.shape[1] == sum(lengths) and filled.packed.max_seqlen_q == max(lengths)
    assert filled.rows is batch.rows and filled.targets is batch.targets
    assert filled_up(batch, own, share) is batch


def test_real_tokens_are_those_of_the_sequences() -> None:
    sequences = training_sequences()
    real = sum(len(one.prompt_ids) + len(one.response_ids) - 1 for one in sequences)
    whole = make_micro_batch(sequences, range(len(sequences)), 8, CPU)
    assert int((~whole.padding).sum()) == real and whole.tokens.shape[1] % 8 == 0
    parts = [make_micro_batch(sequences, range(len(sequences)), 1, CPU, ContextShare(rank, 2)) for rank in range(2)]
    assert sum(int((~part.padding).sum()) for part in parts) == real


def test_all_gather_makes_micro_batches_as_long_and_changes_no_number(make_actor: Callable[..., Actor]) -> None:
    seen = {}
    for dispatcher in ("alltoall", "allgather"):
        actor = make_actor(
            "qwen3_moe", actor={"micro_batch_tokens": 14}, parallel={"expert_dispatcher": dispatcher}
        )
        spans: list[int] = []
        actor.report_micro_batches(lambda: 0.0, lambda span, spans=spans: spans.append(span.tokens))
        seen[dispatcher] = actor.logprobs(training_sequences())
        assert (len(set(spans)) == 1) == (dispatcher == "allgather"), spans
    for one, other in zip(*seen.values(), strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
