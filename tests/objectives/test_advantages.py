"""Eq. 2 against the statistics module, and its tensor form against its plain form."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.objectives.advantages import batched_group_advantages, group_advantages, has_signal

LIGHT = settings(max_examples=60, deadline=None)
REWARDS = st.lists(st.sampled_from([0.0, 1.0, -0.25, 0.1]), min_size=1, max_size=9)


@LIGHT
@given(REWARDS, st.sampled_from([1e-6, 1e-2]))
def test_standardized(rewards, epsilon):
    advantages = group_advantages(rewards, epsilon=epsilon)
    assert has_signal(rewards) == (len(set(rewards)) > 1)
    if len(set(rewards)) == 1:
        assert advantages == (0.0,) * len(rewards)
        return
    mean, std = statistics.mean(rewards), statistics.stdev(rewards)
    assert advantages == pytest.approx([(reward - mean) / (std + epsilon) for reward in rewards], abs=1e-12)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-9)


@LIGHT
@given(REWARDS)
def test_centered(rewards):
    expected = [reward - statistics.mean(rewards) for reward in rewards]
    assert group_advantages(rewards, kind="centered") == pytest.approx(expected, abs=1e-12)


@LIGHT
@given(REWARDS)
def test_leave_one_out(rewards):
    expected = [
        reward - statistics.mean(rewards[:i] + rewards[i + 1 :]) if len(rewards) > 1 else 0.0
        for i, reward in enumerate(rewards)
    ]
    assert group_advantages(rewards, kind="leave_one_out") == pytest.approx(expected, abs=1e-12)


@LIGHT
@given(st.integers(2, 9), st.data(), st.sampled_from(["standardized", "centered", "leave_one_out"]))
def test_tensor_form_equals_plain_form(samples, data, kind):
    row = st.lists(st.sampled_from([0.0, 1.0, 0.1]), min_size=samples, max_size=samples)
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    batched = batched_group_advantages(torch.tensor(rows, dtype=torch.float64), kind=kind)
    assert batched.tolist() == [pytest.approx(group_advantages(rewards, kind=kind), abs=1e-9) for rewards in rows]
    for rewards, advantages in zip(rows, batched.tolist(), strict=True):
        assert has_signal(rewards) == any(advantages)


def test_equal_rewards_leave_no_rounding_residue():
    assert group_advantages([0.1] * 3) == (0.0, 0.0, 0.0)
    assert batched_group_advantages(torch.full((2, 7), 0.7)).tolist() == [[0.0] * 7] * 2
    assert batched_group_advantages(torch.ones(4, 1)).tolist() == [[0.0]] * 4
