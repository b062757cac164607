"""Objectives that look at whole responses, GSPO and the correction for the engine, as loops over Python floats.

Gradients are checked against central differences of the same loops. Micro-batches hold whole responses, in any split.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.objectives.correction import Correction
from megatron_seirenes.objectives.segments import segment_means, segment_sums
from megatron_seirenes.objectives.surrogate import clipped_surrogate, reinforce
from megatron_seirenes.objectives.token_loss import TokenBatch

LOW, HIGH = 0.1, 0.15
LIGHT = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 10_000)
CORRECTIONS = st.builds(
    Correction,
    kind=st.sampled_from(["truncated", "masked"]),
    level=st.sampled_from(["token", "sequence"]),
    high=st.sampled_from([1.0, 1.3, 2.0]),
    low=st.sampled_from([0.0, 0.6]),
)


@dataclass
class Response:
    """One response, a number a token."""

    new: list[float]
    old: list[float]
    behaviour: list[float]
    advantage: float
    weight: float


def draw(seed: int) -> list[Response]:
    rng = random.Random(seed)
    responses = []
    for _ in range(rng.randint(1, 6)):
        new = [rng.uniform(-3, -0.05) for _ in range(rng.randint(1, 6))]
        old = [value + rng.choice([0.0, rng.uniform(-0.4, 0.4)]) for value in new]
        behaviour = [value + rng.choice([0.0, rng.uniform(-0.7, 0.7)]) for value in old]
        responses.append(Response(new, old, behaviour, rng.choice([-1.5, 0.0, 0.8]), rng.uniform(0.01, 1)))
    return responses


def batch(responses: list[Response], logprobs: torch.Tensor) -> TokenBatch:
    lengths = [len(response.new) for response in responses]

    def tensor(values):
        return torch.tensor(values, dtype=torch.float64)

    def spread(values):
        return tensor([value for value, length in zip(values, lengths, strict=True) for _ in range(length)])

    return TokenBatch(
        logprobs=logprobs,
        old_logprobs=tensor([value for response in responses for value in response.old]),
        advantages=spread([response.advantage for response in responses]),
        weights=spread([response.weight for response in responses]),
        entropy=torch.zeros_like(logprobs),
        behaviour_logprobs=tensor([value for response in responses for value in response.behaviour]),
        segments=spread(range(len(responses))).long(),
    )


def loss_and_gradient(token_loss, responses, seed):
    """Loss, gradient a token and sums, over a random split of the responses into micro-batches."""
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, len(responses)), min(2, len(responses) - 1))) if len(responses) > 1 else []
    loss, gradient, sums = 0.0, [], {}
    for start, end in zip([0, *cuts], [*cuts, len(responses)], strict=True):
        part = responses[start:end]
        new = [value for response in part for value in response.new]
        logprobs = torch.tensor(new, dtype=torch.float64, requires_grad=True)
        result = token_loss(batch(part, logprobs))
        result.loss.backward()
        loss += result.loss.item()
        gradient += logprobs.grad.tolist()
        sums = {key: sums.get(key, 0.0) + value.item() for key, value in result.sums.items()}
    return loss, gradient, sums


def differences(function, responses, step=1e-6):
    gradient = []
    for response in responses:
        for t in range(len(response.new)):
            sides = []
            for sign in (1, -1):
                kept = response.new[t]
                response.new[t] = kept + sign * step
                sides.append(function(responses))
                response.new[t] = kept
            gradient.append((sides[0] - sides[1]) / (2 * step))
    return gradient


def gspo(responses):
    """GSPO's Eq. 5 with asymmetric bounds; the weight of a token times the tokens is the weight of the response."""
    total = 0.0
    for r in responses:
        ratio = math.exp(sum(n - o for n, o in zip(r.new, r.old, strict=True)) / len(r.new))
        clipped = min(max(ratio, 1 - LOW), 1 + HIGH)
        total -= r.weight * len(r.new) * min(ratio * r.advantage, clipped * r.advantage)
    return total


def coefficients(response, correction):
    gaps = [o - b for o, b in zip(response.old, response.behaviour, strict=True)]
    ratios = [math.exp(gap) for gap in gaps]
    if correction.level == "sequence":
        ratios = [math.exp(sum(gaps))] * len(gaps)
    if correction.kind == "truncated":
        return [min(ratio, correction.high) for ratio in ratios]
    return [ratio if correction.low <= ratio <= correction.high else 0.0 for ratio in ratios]


def corrected_reinforce(responses, correction):
    return -sum(
        r.weight * c * r.advantage * n
        for r in responses
        for c, n in zip(coefficients(r, correction), r.new, strict=True)
    )


def corrected_clipped(responses, correction):
    total = 0.0
    for r in responses:
        for c, new, old in zip(coefficients(r, correction), r.new, r.old, strict=True):
            ratio = math.exp(new - old)
            clipped = min(max(ratio, 1 - LOW), 1 + HIGH)
            total -= r.weight * c * min(ratio * r.advantage, clipped * r.advantage)
    return total


@LIGHT
@given(SEEDS)
def test_gspo(seed):
    responses = draw(seed)
    loss, gradient, _ = loss_and_gradient(clipped_surrogate(LOW, HIGH, ratio="sequence"), responses, seed)
    assert loss == pytest.approx(gspo(responses), abs=1e-12)
    assert gradient == pytest.approx(differences(gspo, responses), abs=1e-7)


@LIGHT
@given(SEEDS, CORRECTIONS)
def test_corrections(seed, correction):
    responses = draw(seed)
    for token_loss, reference in (
        (reinforce(correction=correction), lambda given: corrected_reinforce(given, correction)),
        (clipped_surrogate(LOW, HIGH, correction=correction), lambda given: corrected_clipped(given, correction)),
    ):
        loss, gradient, _ = loss_and_gradient(token_loss, responses, seed)
        assert loss == pytest.approx(reference(responses), abs=1e-12)
        assert gradient == pytest.approx(differences(reference, responses), abs=1e-7)


@LIGHT
@given(SEEDS, CORRECTIONS, SEEDS)
def test_statistics_count_what_is_rejected_too(seed, correction, other):
    responses = draw(seed)
    _, _, sums = loss_and_gradient(reinforce(correction=correction), responses, other)
    gaps = [[o - b for o, b in zip(r.old, r.behaviour, strict=True)] for r in responses]
    low = correction.low if correction.kind == "masked" else 0.0

    def outside(ratios):
        return sum(not low <= ratio <= correction.high for ratio in ratios)

    tokens = [math.exp(gap) for row in gaps for gap in row]
    whole = [math.exp(sum(row)) for row in gaps]
    assert sums["correction_mean"] == pytest.approx(sum(tokens))
    assert sums["correction_outside"] == outside(tokens)
    assert sums["sequences"] == pytest.approx(len(responses))
    assert sums["sequence_correction_mean"] == pytest.approx(sum(whole))
    assert sums["sequence_correction_outside"] == pytest.approx(outside(whole))


def test_a_ratio_beyond_every_float_gives_a_finite_coefficient():
    far = Response([-0.1], [-0.1], [-1000.0], 1.0, 1.0)
    truncated, _, sums = loss_and_gradient(reinforce(correction=Correction("truncated")), [far], 0)
    masked, gradient, _ = loss_and_gradient(reinforce(correction=Correction("masked")), [far], 0)
    assert truncated == pytest.approx(0.2)
    assert (masked, gradient) == (0.0, [0.0])
    assert math.isinf(sums["correction_mean"])


def test_what_a_setting_needs_is_asked_for():
    ones = torch.zeros(2)
    bare = TokenBatch(ones, ones, ones, ones, ones)
    with pytest.raises(ValueError, match="no segments"):
        clipped_surrogate(0.2, 0.2, ratio="sequence")(bare)
    with pytest.raises(ValueError, match="correction needs the engine"):
        reinforce(correction=Correction("masked"))(bare)


def test_segments_may_be_one_token_long_or_none():
    values, segments = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 1])
    assert segment_sums(values, segments).tolist() == [1.0, 6.0, 6.0]
    assert segment_means(values, segments).tolist() == [1.0, 3.0, 3.0]
    assert segment_sums(values[:0], segments[:0]).tolist() == []


def test_the_entropy_bonus_lowers_the_loss_by_the_weighted_entropy():
    entropy = torch.tensor([0.5, 2.0], requires_grad=True)
    ones = torch.zeros(2)
    tokens = TokenBatch(ones, ones, ones, torch.tensor([0.25, 0.5]), entropy)
    for token_loss in (reinforce(entropy_bonus=0.1), clipped_surrogate(0.2, 0.2, entropy_bonus=0.1)):
        entropy.grad = None
        result = token_loss(tokens)
        result.loss.backward()
        assert result.loss.item() == pytest.approx(-0.1 * (0.25 * 0.5 + 0.5 * 2.0))
        assert entropy.grad.tolist() == pytest.approx([-0.025, -0.05])
