"""The estimators of KL: unbiased where they claim it, and gradients that point where the docstring says."""

from __future__ import annotations

import math

import pytest
import torch

from megatron_seirenes.objectives.kl import KL_ESTIMATORS, k1, k2, k3, unbiased_penalty

LOGITS = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([0.0, 0.5, -0.2, 0.4], dtype=torch.float64), dim=0)


def expected(estimator, logits):
    """The mean over every token of a small vocabulary, weighted by its fixed sampling probability."""
    logprobs = torch.log_softmax(logits, dim=0)
    return (logprobs.exp().detach() * estimator(logprobs, REFERENCE)).sum()


def gradient(function):
    logits = LOGITS.clone().requires_grad_()
    function(logits).backward()
    return logits.grad


def forward_and_reverse(logits):
    logprobs = torch.log_softmax(logits, dim=0)
    return (REFERENCE.exp() * (REFERENCE - logprobs)).sum(), (logprobs.exp() * (logprobs - REFERENCE)).sum()


def test_values_against_plain_formulas():
    for new, ref in [(-0.5, -0.7), (-3.0, -0.1), (-1.0, -1.0)]:
        x, pair = new - ref, (torch.tensor(new, dtype=torch.float64), torch.tensor(ref, dtype=torch.float64))
        assert k1(*pair).item() == pytest.approx(x)
        assert k2(*pair).item() == pytest.approx(x * x / 2)
        assert k3(*pair).item() == pytest.approx(math.exp(-x) - 1 + x, abs=1e-12)


def test_k1_and_k3_are_unbiased_and_k2_and_k3_never_negative():
    true = forward_and_reverse(LOGITS)[1].item()
    assert expected(k1, LOGITS).item() == pytest.approx(true, abs=1e-12)
    assert expected(k3, LOGITS).item() == pytest.approx(true, abs=1e-12)
    logprobs = torch.log_softmax(LOGITS, dim=0)
    assert (k2(logprobs, REFERENCE) >= 0).all()
    assert (k3(logprobs, REFERENCE) >= 0).all()


def test_gradients_as_penalties():
    assert gradient(lambda logits: expected(k1, logits)).abs().max() < 1e-12
    reverse = gradient(lambda logits: forward_and_reverse(logits)[1])
    forward = gradient(lambda logits: forward_and_reverse(logits)[0])
    torch.testing.assert_close(gradient(lambda logits: expected(k2, logits)), reverse)
    torch.testing.assert_close(gradient(lambda logits: expected(k3, logits)), forward)


def test_all_are_zero_at_the_reference():
    for estimator in KL_ESTIMATORS.values():
        assert estimator(REFERENCE, REFERENCE).abs().max() == 0


def off_policy(estimator, logits, old):
    """The mean of the unbiased penalty over tokens drawn from an older policy."""
    logprobs = torch.log_softmax(logits, dim=0)
    return (old.exp() * unbiased_penalty(estimator, logprobs, REFERENCE, old)).sum()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_unbiased_penalties_have_the_gradient_of_the_divergence_on_tokens_of_an_older_policy(estimator):
    old = torch.log_softmax(torch.tensor([-0.4, 0.9, 0.2, 0.6], dtype=torch.float64), dim=0)
    true = gradient(lambda logits: forward_and_reverse(logits)[1])
    torch.testing.assert_close(gradient(lambda logits: off_policy(estimator, logits, old)), true)
    if estimator != "k2":
        assert off_policy(estimator, LOGITS, old).item() == pytest.approx(forward_and_reverse(LOGITS)[1].item())
    plain = gradient(lambda logits: (old.exp() * KL_ESTIMATORS[estimator](logits.log_softmax(0), REFERENCE)).sum())
    assert (plain - true).abs().max() > 0.01  # without the ratio it is another direction
