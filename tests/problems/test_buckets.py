from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.problems.buckets import balanced_sample, difficulty_bucket

counts = st.dictionaries(st.integers(0, 300).map("p/{}".format), st.integers(0, 8), min_size=1, max_size=80)


def test_buckets_are_equal_intervals_of_the_pass_rate():
    assert [difficulty_bucket(successes, 8, 4) for successes in range(9)] == [0, 0, 1, 1, 2, 2, 3, 3, 3]
    assert [difficulty_bucket(successes, 3, 2) for successes in range(4)] == [0, 0, 1, 1]


@given(counts, st.data())
def test_a_sample_is_as_even_as_the_buckets_allow(successes, data):
    count = data.draw(st.integers(0, len(successes)))
    chosen = balanced_sample(successes, 8, 4, count, seed=0)
    assert len(chosen) == len(set(chosen)) == count
    assert set(chosen) <= set(successes)
    available = Counter(difficulty_bucket(value, 8, 4) for value in successes.values())
    given_ = Counter(difficulty_bucket(successes[problem_id], 8, 4) for problem_id in chosen)
    most = max(given_.values(), default=0)
    for bucket in available:
        assert given_[bucket] >= min(available[bucket], most - 1)


def test_harder_buckets_get_what_does_not_divide():
    successes = {f"p/{rate}{index}": rate for rate in (0, 8) for index in range(5)}
    chosen = balanced_sample(successes, 8, 2, 5, seed=0)
    assert Counter(successes[problem_id] for problem_id in chosen) == {0: 3, 8: 2}


@given(counts)
def test_the_order_of_problems_does_not_matter_and_the_seed_does(successes):
    count = len(successes) // 2
    backwards = dict(reversed(successes.items()))
    assert balanced_sample(successes, 8, 4, count, 1) == balanced_sample(backwards, 8, 4, count, 1)


def test_refusals():
    with pytest.raises(ValueError, match="3 problems asked of 1"):
        balanced_sample({"p": 1}, 8, 4, 3, seed=0)
    with pytest.raises(ValueError, match="9 successes of 8"):
        difficulty_bucket(9, 8, 4)
