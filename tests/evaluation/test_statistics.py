"""avg@k and its interval against closed forms and simulation."""

import numpy as np
import pytest

from megatron_seirenes.evaluation.statistics import average_at_k, bootstrap_interval, paired_difference


def test_average_at_k_is_the_mean_of_question_means():
    assert average_at_k([[True, False], [True, True], [False, False]]) == pytest.approx(0.5)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        values = generator.binomial(4, 0.3, size=120) / 4
        estimate = bootstrap_interval(values, seed=trial)
        covered += estimate.low <= 0.3 <= estimate.high
    assert 0.90 <= covered / 200 <= 0.99


def test_a_paired_difference_is_narrower_than_two_separate_intervals():
    generator = np.random.default_rng(1)
    before = generator.uniform(size=300)
    after = np.clip(before + 0.1, 0, 1)
    estimate = paired_difference(before, after, seed=0)
    assert 0 < estimate.low < estimate.mean < estimate.high < 0.11
    with pytest.raises(ValueError, match="same questions"):
        paired_difference(before, after[:-1], seed=0)
