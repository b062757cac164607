"""Packed attention against attention written out with a block-diagonal causal mask."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from megatron.core.packed_seq_params import PackedSeqParams

from megatron_seirenes.actor.attention import PackedAttention

LENGTHS = (5, 1, 9, 2)
HEAD_DIM = 8


def packed(lengths: tuple[int, ...]) -> PackedSeqParams:
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)
    return PackedSeqParams(qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds)


def written_out(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    allowed = (owner[:, None] == owner) & torch.ones(len(owner), len(owner)).tril().bool()
    scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(HEAD_DIM)
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, value).flatten(1)


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (6, 1)])
def test_equals_a_block_diagonal_causal_mask(heads: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    shapes = (heads, groups, groups)
    ours = [torch.randn(sum(LENGTHS), n, HEAD_DIM, generator=generator).requires_grad_() for n in shapes]
    theirs = [one.detach().clone().requires_grad_() for one in ours]
    attention = PackedAttention(SimpleNamespace(kv_channels=HEAD_DIM), layer_number=1)  # type: ignore[arg-type]
    output = attention(*ours, None, packed_seq_params=packed(LENGTHS))
    expected = written_out(*theirs)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)
    direction = torch.randn(expected.shape, generator=generator)
    output.backward(direction)
    expected.backward(direction)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-6)


def test_a_mask_or_unpacked_input_is_refused() -> None:
    attention = PackedAttention(SimpleNamespace(kv_channels=HEAD_DIM), layer_number=1)  # type: ignore[arg-type]
    states = [torch.zeros(3, 2, HEAD_DIM)] * 3
    with pytest.raises(ValueError, match="packed_seq_params"):
        attention(*states, None)
    with pytest.raises(ValueError, match="neither a mask nor a bias"):
        attention(*states, torch.zeros(3, 3), packed_seq_params=packed((3,)))
