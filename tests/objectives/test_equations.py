"""Eq. 3, 9, 12 and 13 as loops over Python floats, against weights and losses over any split into micro-batches.

Gradients are checked against central differences of the same loops, so that neither autograd nor the weights are
compared with themselves.
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from flush_maker import make_flush, token_batch, token_values
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.objectives.aggregation import rollout_weights
from megatron_seirenes.objectives.surrogate import clipped_surrogate, reinforce

LOW, HIGH = 0.2, 0.28
LIGHT = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 10_000)

KL = {
    "k1": lambda x: x,
    "k2": lambda x: x * x / 2,
    "k3": lambda x: math.exp(-x) - 1 + x,
}


def clipped_token(new, old, reference, advantage, beta, estimator):
    ratio = math.exp(new - old)
    kept = min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)
    return kept - beta * KL[estimator](new - reference)


def tokens_of(groups, values):
    """For each group, for each rollout, the token indices of its response in the flush."""
    position, layout = 0, []
    for group in groups:
        rows = []
        for rollout in group.rollouts:
            rows.append(range(position, position + len(rollout.response_ids)))
            position += len(rollout.response_ids)
        layout.append(rows)
    assert position == len(values["new"])
    return layout


def equation_3(rows, values, beta, estimator):
    """J of one group."""
    total = 0.0
    for row in rows:
        inner = 0.0
        for t in row:
            inner += clipped_token(
                values["new"][t], values["old"][t], values["reference"][t], values["advantage"][t], beta, estimator
            )
        total += inner / len(row)
    return total / len(rows)


def equation_9(groups, values, beta, estimator):
    objectives = [equation_3(rows, values, beta, estimator) for rows in tokens_of(groups, values)]
    return -sum(objectives) / len(groups)


def equation_12(groups, values):
    total = 0.0
    for rows in tokens_of(groups, values):
        for row in rows:
            total += sum(values["advantage"][t] * values["new"][t] for t in row) / len(row) / len(rows)
    return -total / len(groups)


def equation_13(groups, values, beta, estimator):
    layout = tokens_of(groups, values)
    questions: dict[tuple[str, int], list[int]] = {}
    for index, group in enumerate(groups):
        questions.setdefault((group.problem_id, group.birth.step), []).append(index)
    total = 0.0
    for hints in questions.values():
        total += sum(-equation_3(layout[index], values, beta, estimator) for index in hints) / len(hints)
    return total / len(questions)


def finite_differences(function, values, step=1e-6):
    gradient = []
    for index in range(len(values["new"])):
        sides = []
        for sign in (1, -1):
            moved = dict(values, new=list(values["new"]))
            moved["new"][index] += sign * step
            sides.append(function(moved))
        gradient.append((sides[0] - sides[1]) / (2 * step))
    return gradient


def loss_and_gradient(token_loss, values, seed):
    """The loss summed over a random split of the tokens into micro-batches, and its gradient a token."""
    logprobs = torch.tensor(values["new"], dtype=torch.float64, requires_grad=True)
    order = list(range(len(values["new"])))
    rng = random.Random(seed)
    rng.shuffle(order)
    cuts = sorted(rng.sample(range(1, len(order)), min(2, len(order) - 1))) if len(order) > 1 else []
    total, sums = 0.0, {}
    for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        result = token_loss(token_batch(values, logprobs, order[start:end]))
        result.loss.backward()
        total += result.loss.item()
        sums = {key: sums.get(key, 0.0) + value.item() for key, value in result.sums.items()}
    return total, logprobs.grad.tolist(), sums


def away_from_the_bounds(values):
    """Leaves out the kinks, where a central difference means nothing."""
    for index, old in enumerate(values["old"]):
        for bound in (math.log(1 - LOW), math.log(1 + HIGH)):
            if abs(values["new"][index] - old - bound) < 1e-3:
                values["old"][index] -= 0.01
    return values


@LIGHT
@given(SEEDS, st.sampled_from([0.0, 0.3]), st.sampled_from(["k1", "k2", "k3"]), st.sampled_from(["group", "question"]))
def test_clipped_surrogate(seed, beta, estimator, balance):
    groups = make_flush(seed)
    values = away_from_the_bounds(token_values(groups, rollout_weights(groups, balance, "sequence_mean"), seed))
    equation = equation_9 if balance == "group" else equation_13

    loss, gradient, _ = loss_and_gradient(clipped_surrogate(LOW, HIGH, beta, estimator), values, seed)
    assert loss == pytest.approx(equation(groups, values, beta, estimator), abs=1e-12)
    numeric = finite_differences(lambda moved: equation(groups, moved, beta, estimator), values)
    assert gradient == pytest.approx(numeric, abs=1e-7)


@LIGHT
@given(SEEDS)
def test_reinforce(seed):
    groups = make_flush(seed)
    values = token_values(groups, rollout_weights(groups, "group", "sequence_mean"), seed)
    loss, gradient, sums = loss_and_gradient(reinforce(), values, seed)
    assert loss == pytest.approx(equation_12(groups, values), abs=1e-12)
    assert gradient == pytest.approx(finite_differences(lambda moved: equation_12(groups, moved), values), abs=1e-7)
    assert "clip_fraction" not in sums


@LIGHT
@given(SEEDS, SEEDS)
def test_any_split_gives_the_same_loss_gradient_and_sums(seed, other):
    groups = make_flush(seed)
    values = token_values(groups, rollout_weights(groups, "question", "token_mean"), seed)
    loss = clipped_surrogate(LOW, HIGH, 0.1)
    one, another = loss_and_gradient(loss, values, seed), loss_and_gradient(loss, values, other)
    assert one[0] == pytest.approx(another[0], abs=1e-12)
    assert one[1] == pytest.approx(another[1], abs=1e-15)
    assert one[2] == pytest.approx(another[2], abs=1e-9)


@LIGHT
@given(SEEDS)
def test_sums(seed):
    groups = make_flush(seed)
    values = token_values(groups, rollout_weights(groups, "group", "sequence_mean"), seed)
    _, _, sums = loss_and_gradient(clipped_surrogate(LOW, HIGH), values, seed)
    pairs = list(zip(values["new"], values["old"], values["advantage"], strict=True))
    clipped = 0
    for new, old, advantage in pairs:
        ratio = math.exp(new - old)
        clipped += min(max(ratio, 1 - LOW), 1 + HIGH) * advantage < ratio * advantage
    x = [new - reference for new, reference in zip(values["new"], values["reference"], strict=True)]
    assert sums == pytest.approx(
        {
            "tokens": len(pairs),
            "entropy": sum(values["entropy"]),
            "ppo_kl": sum(old - new for new, old, _ in pairs),
            "clip_fraction": clipped,
            "reference_kl": sum(map(KL["k3"], x)),
        },
        abs=1e-9,
    )
