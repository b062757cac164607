"""Eq. 2 and its variants against the statistics module."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.objectives.advantages import group_advantages, has_signal

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


def test_equal_rewards_leave_no_rounding_residue():
    assert group_advantages([0.1] * 3) == (0.0, 0.0, 0.0)
    for kind in ("standardized", "centered", "leave_one_out"):
        assert group_advantages([0.7] * 7, kind=kind) == (0.0,) * 7
        assert group_advantages([1.0], kind=kind) == (0.0,)
