"""What is saved of an optimizer and put back into its state: by name, and at its place where a buffer has gaps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from megatron.core.dist_checkpointing.mapping import LocalNonpersistentObject

from megatron_seirenes.actor.checkpoint import _filled, _spread


def test_numbers_lie_where_the_buckets_begin() -> None:
    buckets = [SimpleNamespace(numel_unpadded=3), SimpleNamespace(numel_unpadded=2)]
    buffer = SimpleNamespace(numel=12, buckets=buckets, bucket_indices=[(0, 8), (8, 12)])
    spread = _spread(torch.arange(1.0, 6.0), buffer)
    assert spread.tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 0, 0]


@pytest.mark.parametrize("given", [[torch.zeros(1)], torch.zeros(1)])
def test_a_state_of_another_form_is_refused_in_words(given: object) -> None:
    state = {"state": {"step": LocalNonpersistentObject(1)}}
    assert _filled(state, None) == {"state": {"step": 1}}
    with pytest.raises(ValueError, match="form of another version"):
        _filled(state, {"state": given})
