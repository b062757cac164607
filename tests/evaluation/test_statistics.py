"""avg@k, pass@k, maj@k and intervals against closed forms, brute force and simulation."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.evaluation.statistics import (
    average_at_k,
    bootstrap_interval,
    macro_interval,
    majority_is_right,
    paired_difference,
    pass_at_k,
)


def test_average_at_k_is_the_mean_of_question_means():
    assert average_at_k([[True, False], [True, True], [False, False]]) == pytest.approx(0.5)


@pytest.mark.parametrize(("samples", "k"), [(1, 1), (4, 2), (5, 3), (6, 6), (7, 1)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(samples, k):
    for correct in range(samples + 1):
        marks = [True] * correct + [False] * (samples - correct)
        subsets = list(combinations(marks, k))
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_closed_forms():
    for samples, correct in product(range(1, 40), repeat=2):
        if correct <= samples:
            assert pass_at_k(samples, correct, 1) == pytest.approx(correct / samples)
            assert pass_at_k(samples, correct, samples) == float(correct > 0)


@pytest.mark.parametrize("wrong", [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_of_the_impossible_is_refused(wrong):
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(*wrong)


def test_pass_at_k_is_unbiased():
    """Over draws of 8, the mean of pass@4 is 1 − (1 − p)^4."""
    generator = np.random.default_rng(0)
    counts = generator.binomial(8, 0.2, size=20_000)
    assert np.mean([pass_at_k(8, int(count), 4) for count in counts]) == pytest.approx(1 - 0.8**4, abs=0.005)


VOTES = st.lists(st.sampled_from([(True, "1"), (True, "1.0"), (False, "0"), (False, "2"), (False, None)]), min_size=1)


@given(VOTES)
def test_a_majority_against_brute_force(votes):
    """Count every way to break a tie among the most frequent answers."""
    named = ["right" if right else text for right, text in votes if right or text is not None]
    most = max((named.count(name) for name in named), default=0)
    winners = {name for name in named if named.count(name) == most}
    assert majority_is_right(votes) == pytest.approx(1 / len(winners) if "right" in winners else 0.0)


def test_a_majority_joins_right_answers_and_spaces():
    assert majority_is_right([(True, "1/2"), (True, "0.5"), (False, "7")]) == 1.0
    assert majority_is_right([(True, "1"), (False, "x + 1"), (False, "x  + 1 ")]) == 0.0
    assert majority_is_right([(False, None), (False, None), (True, "1")]) == 1.0
    assert majority_is_right([(False, None)]) == 0.0


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        values = generator.binomial(4, 0.3, size=120) / 4
        estimate = bootstrap_interval(values, seed=trial)
        covered += estimate.low <= 0.3 <= estimate.high
    assert 0.90 <= covered / 200 <= 0.99


def test_the_interval_of_an_average_over_benchmarks_covers_it():
    """Two benchmarks of different size and difficulty: AVG weighs them alike."""
    generator = np.random.default_rng(2)
    covered = 0
    for trial in range(200):
        easy, hard = generator.binomial(4, 0.8, size=200) / 4, generator.binomial(4, 0.2, size=40) / 4
        estimate = macro_interval([easy, hard], seed=trial)
        assert estimate.mean == pytest.approx((easy.mean() + hard.mean()) / 2)
        covered += estimate.low <= 0.5 <= estimate.high
    assert 0.90 <= covered / 200 <= 0.99


def test_a_paired_difference_is_narrower_than_two_separate_intervals():
    generator = np.random.default_rng(1)
    before = generator.uniform(size=300)
    after = np.clip(before + 0.1, 0, 1)
    estimate = paired_difference(before, after, seed=0)
    assert 0 < estimate.low < estimate.mean < estimate.high < 0.11
    with pytest.raises(ValueError, match="same questions"):
        paired_difference(before, after[:-1], seed=0)
