"""The losses where they are delicate: on policy, at the bounds, far off policy, with values that are not finite."""

from __future__ import annotations

import math

import pytest
import torch

from megatron_seirenes.config.schema import ObjectiveSection
from megatron_seirenes.games.registry import default_game
from megatron_seirenes.objectives.registry import build_loss
from megatron_seirenes.objectives.surrogate import clipped_surrogate, reinforce, supervised
from megatron_seirenes.objectives.token_loss import TokenBatch


def batch(new, old, advantages, *, reference=None, weights=None, dtype=torch.float32):
    def tensor(values):
        return torch.tensor(values, dtype=dtype)

    return TokenBatch(
        logprobs=tensor(new).requires_grad_(),
        old_logprobs=tensor(old),
        advantages=tensor(advantages),
        weights=tensor(weights or [1.0] * len(new)),
        entropy=tensor([0.5] * len(new)),
        reference_logprobs=None if reference is None else tensor(reference),
    )


def run(token_loss, tokens):
    result = token_loss(tokens)
    result.loss.backward()
    return result, tokens.logprobs.grad


def test_on_policy_kl_is_exactly_zero_nothing_is_clipped_and_the_gradient_is_that_of_reinforce():
    new, advantages, weights = [-0.1, -2.3, -7.77], [1.3, -0.4, 0.9], [0.5, 0.25, 0.125]
    clipped, gradient = run(clipped_surrogate(0.2, 0.28), batch(new, new, advantages, weights=weights))
    _, plain = run(reinforce(), batch(new, new, advantages, weights=weights))
    assert clipped.sums["ppo_kl"].item() == 0.0
    assert clipped.sums["clip_fraction"].item() == 0.0
    assert torch.equal(gradient, plain)


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_textbook_form_under_autograd(seed):
    generator = torch.Generator().manual_seed(seed)
    new, old, advantages = (torch.randn(200, generator=generator, dtype=torch.float64) for _ in range(3))
    result, gradient = run(
        clipped_surrogate(0.1, 0.4), batch(new.tolist(), old.tolist(), advantages.tolist(), dtype=torch.float64)
    )
    logprobs = new.clone().requires_grad_()
    ratio = (logprobs - old).exp()
    textbook = -torch.minimum(ratio * advantages, ratio.clamp(0.9, 1.4) * advantages).sum()
    textbook.backward()
    torch.testing.assert_close(result.loss, textbook)
    torch.testing.assert_close(gradient, logprobs.grad)


def test_only_clipping_that_lowers_the_objective_is_counted_and_stops_the_gradient():
    log2 = math.log(2)
    tokens = batch([0.0] * 5, [-log2, log2, -log2, log2, -log2], [1.0, 1.0, -1.0, -1.0, 0.0])
    result, gradient = run(clipped_surrogate(0.2, 0.28), tokens)
    assert result.sums["clip_fraction"].item() == 2  # ratio 2 with A > 0, ratio 1/2 with A < 0
    assert gradient.tolist() == pytest.approx([0.0, -0.5, 2.0, 0.0, 0.0])
    assert result.loss.item() == pytest.approx(-1.28 - 0.5 + 2.0 + 0.8)


def test_a_ratio_beyond_float_range_under_an_active_bound_does_not_spoil_the_gradient():
    tokens = batch([-0.1, -0.1, -200.0], [-200.0, -0.1, -0.1], [1.0, 1.0, -1.0])
    result, gradient = run(clipped_surrogate(0.2, 0.28), tokens)
    assert result.loss.item() == pytest.approx(-1.28 - 1.0 + 0.8)
    assert gradient.tolist() == [0.0, -1.0, 0.0]


def test_what_is_not_finite_is_seen():
    for new, old, advantage in [(math.nan, -0.1, 1.0), (-0.1, math.nan, 1.0), (-0.1, -0.1, math.nan)]:
        result, _ = run(clipped_surrogate(0.2, 0.28), batch([new, -0.1], [old, -0.1], [advantage, 1.0]))
        assert math.isnan(result.loss.item())
    result, _ = run(clipped_surrogate(0.2, 0.28), batch([-0.1], [-math.inf], [1.0]))
    assert math.isinf(result.sums["ppo_kl"].item())
    result, _ = run(clipped_surrogate(0.2, 0.28), batch([-0.1], [-200.0], [-1.0]))
    assert math.isinf(result.loss.item())


def test_a_penalty_needs_a_reference():
    with pytest.raises(ValueError, match="reference_kl is above 0"):
        clipped_surrogate(0.2, 0.28, reference_kl=0.1)(batch([-0.1], [-0.1], [1.0]))
    result, _ = run(clipped_surrogate(0.2, 0.28), batch([-0.1], [-0.1], [1.0]))
    assert "reference_kl" not in result.sums


def test_supervised_is_weighted_cross_entropy():
    result, gradient = run(supervised(), batch([-0.5, -1.5], [math.nan] * 2, [math.nan] * 2, weights=[0.5, 0.25]))
    assert result.loss.item() == pytest.approx(0.5 * 0.5 + 0.25 * 1.5)
    assert gradient.tolist() == [-0.5, -0.25]
    assert {key: value.item() for key, value in result.sums.items()} == {"tokens": 2.0, "entropy": 1.0}


def test_sums_are_detached_doubles():
    result, _ = run(clipped_surrogate(0.2, 0.28, 0.1), batch([-0.1], [-0.2], [1.0], reference=[-0.3]))
    assert all(value.dtype == torch.float64 and not value.requires_grad for value in result.sums.values())


def test_every_stream_of_every_game_gets_the_loss_it_names():
    settings = ObjectiveSection(clip_low=0.1, clip_high=0.3)
    game = default_game("seirenes")
    tokens = batch([0.0], [-5.0], [1.0])
    losses = {stream.name: build_loss(stream, settings)(tokens) for stream in game.streams}
    assert losses["clean"].loss.item() == losses["robust"].loss.item() == pytest.approx(-1.3)
    assert losses["adversary"].loss.item() == 0.0
    assert "clip_fraction" not in losses["adversary"].sums
