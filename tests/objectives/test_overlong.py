"""DAPO's overlong punishment against its published formula, for rewards of -1 and 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.objectives.overlong import overlong_penalty


def published(tokens: int, longest: int, cache: int) -> float:
    """Eq. 13 of arXiv:2503.14476; a response cannot be longer than the limit here."""
    if tokens <= longest - cache:
        return 0.0
    return ((longest - cache) - tokens) / cache


@given(st.integers(1, 50), st.data())
def test_equals_the_published_formula(longest, data):
    cache = data.draw(st.integers(1, longest))
    tokens = data.draw(st.integers(0, longest))
    assert overlong_penalty(tokens, limit=longest, cache=cache, penalty=1.0) == pytest.approx(
        -published(tokens, longest, cache)
    )


def test_the_slope():
    assert [overlong_penalty(n, limit=20, cache=4, penalty=0.5) for n in (10, 16, 17, 18, 20)] == [
        0.0,
        0.0,
        0.125,
        0.25,
        0.5,
    ]


@pytest.mark.parametrize("cache", [0, 21])
def test_a_slope_that_does_not_fit_is_refused(cache):
    with pytest.raises(ValueError, match="1 to 20 is allowed"):
        overlong_penalty(3, limit=20, cache=cache, penalty=0.5)
