"""Chunked log-probabilities against log_softmax of the whole logits, values and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from megatron_seirenes.actor.logprobs import LogprobOptions, token_logprobs

TOKENS, HIDDEN, WORDS = 23, 12, 37


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(TOKENS, HIDDEN, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(WORDS, HIDDEN, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(0, 30, (TOKENS,), generator=generator)
    return hidden, weight, targets, torch.randn(TOKENS, generator=generator)


def whole(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, sampled: int) -> tuple[Tensor, Tensor]:
    logprobs = ((hidden @ weight.t()).float()[:, :sampled] / temperature).log_softmax(dim=-1)
    entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    return logprobs.gather(1, targets[:, None]).squeeze(1), entropy


@pytest.mark.parametrize("chunk", [1, 7, 23, 100])
@pytest.mark.parametrize(("temperature", "sampled"), [(1.0, WORDS), (0.6, WORDS), (1.7, 30)])
def test_values_and_gradients_equal_the_whole_softmax(chunk: int, temperature: float, sampled: int) -> None:
    hidden, weight, targets, direction = inputs()
    options = LogprobOptions(chunk, temperature, None if sampled == WORDS else sampled)
    logprobs, entropy = token_logprobs(hidden, weight, targets, options)
    assert not entropy.requires_grad
    logprobs.backward(direction)
    ours = hidden.grad, weight.grad

    hidden, weight, targets, direction = inputs()
    expected, expected_entropy = whole(hidden, weight, targets, temperature, sampled)
    expected.backward(direction)
    torch.testing.assert_close(logprobs, expected, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(entropy, expected_entropy, rtol=1e-5, atol=1e-5)
    for seen, reference in zip(ours, (hidden.grad, weight.grad), strict=True):
        assert seen is not None
        assert reference is not None
        assert float((seen - reference).abs().max()) <= 1e-6 * float(reference.abs().max())
    assert weight.grad is not None
    if sampled < WORDS:
        assert not weight.grad[sampled:].any()


@pytest.mark.parametrize("chunk", [4, 100])
@pytest.mark.parametrize(("temperature", "sampled"), [(1.0, WORDS), (0.6, 30)])
def test_entropy_carries_gradient_when_asked(chunk: int, temperature: float, sampled: int) -> None:
    options = LogprobOptions(chunk, temperature, None if sampled == WORDS else sampled, entropy_gradient=True)
    gradients = []
    for function in (
        lambda h, w, t: token_logprobs(h, w, t, options),
        lambda h, w, t: whole(h, w, t, temperature, sampled),
    ):
        hidden, weight, targets, direction = inputs()
        logprobs, entropy = function(hidden, weight, targets)
        (logprobs @ direction + entropy @ direction.flip(0)).backward()
        assert hidden.grad is not None
        assert weight.grad is not None
        gradients.append((hidden.grad, weight.grad))
    for seen, reference in zip(*gradients, strict=True):
        assert float((seen - reference).abs().max()) <= 2e-6 * float(reference.abs().max())


def test_bfloat16_keeps_the_softmax_in_float32() -> None:
    hidden, weight, targets, direction = inputs(torch.bfloat16)
    logprobs, _ = token_logprobs(hidden, weight, targets, LogprobOptions(5))
    logprobs.backward(direction)
    expected, _ = whole(hidden, weight, targets, 1.0, WORDS)
    assert logprobs.dtype is torch.float32
    torch.testing.assert_close(logprobs, expected, rtol=1e-5, atol=1e-5)
    assert hidden.grad is not None
    assert hidden.grad.dtype is torch.bfloat16


def test_no_tokens_give_no_gradient() -> None:
    hidden, weight, _, _ = inputs()
    empty = torch.empty(0, dtype=torch.int64)
    logprobs, entropy = token_logprobs(hidden[:0], weight, empty, LogprobOptions(5))
    assert logprobs.shape == entropy.shape == (0,)
    logprobs.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def _split_over_ranks(rank: int, store: str, answers: dict[tuple[int, int], list[Tensor]]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for sampled in (WORDS, 18):
        hidden, weight, targets, direction = inputs()
        padded = torch.cat([weight.detach(), torch.full((3, HIDDEN), 100.0)])
        shard = padded[rank * 20 : (rank + 1) * 20].clone().requires_grad_()
        options = LogprobOptions(7, 0.6, sampled, dist.group.WORLD, entropy_gradient=True)
        logprobs, entropy = token_logprobs(hidden, shard, targets % sampled, options)
        (logprobs @ direction + entropy @ direction.flip(0)).backward()
        dist.all_reduce(hidden.grad)
        answers[sampled, rank] = [value.detach() for value in (logprobs, entropy, hidden.grad, shard.grad)]
    dist.destroy_process_group()


def test_words_split_over_two_ranks(tmp_path: Path) -> None:
    """Twenty rows a rank, three of them padding; in the second case the other rank has nothing that is sampled."""
    context = mp.get_context("spawn")
    with context.Manager() as manager:
        shared = manager.dict()
        mp.start_processes(_split_over_ranks, (str(tmp_path / "store"), shared), nprocs=2, start_method="spawn")
        answers = dict(shared)
    for sampled in (WORDS, 18):
        hidden, weight, targets, direction = inputs()
        expected, entropy = whole(hidden, weight, targets % sampled, 0.6, sampled)
        (expected @ direction + entropy @ direction.flip(0)).backward()
        for rank in range(2):
            for seen, reference in zip(answers[sampled, rank], (expected, entropy, hidden.grad), strict=False):
                torch.testing.assert_close(seen, reference, rtol=1e-5, atol=1e-5)
        gathered = torch.cat([answers[sampled, rank][3] for rank in range(2)])
        torch.testing.assert_close(gathered[:WORDS], weight.grad, rtol=1e-5, atol=1e-5)
        assert not gathered[WORDS:].any()
