r"""The decisions taken without a worker are right, and are those that the whole decision would take."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.verifier import decision
from megatron_seirenes.verifier.exact import decide_at_once, plain_number
from megatron_seirenes.verifier.options import Options

OPTIONS = Options()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("-018", -18),
        ("+3", 3),
        ("1.50", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("2.", 2),
        ("6/4", Fraction(3, 2)),
        (r"-\frac{1}{2}", Fraction(-1, 2)),
        (r"\dfrac{-1}{2}", Fraction(-1, 2)),
        ("1/0", None),
        ("1,000", None),
        ("٣", None),
        ("1e5", None),
        ("9" * 300, None),
        ("", None),
        ("18\n", None),
    ],
)
def test_plain_numbers(text, value):
    assert plain_number(text) == value


def test_what_is_decided_and_what_is_left_open():
    assert decide_at_once("x", "x", OPTIONS) == "match"
    assert decide_at_once("18", "18.0", OPTIONS) == "match"
    assert decide_at_once("18", "19", OPTIONS) == "mismatch"
    assert decide_at_once("1/3", "0.333333", OPTIONS) is None
    assert decide_at_once("18", "x", OPTIONS) is None
    assert decide_at_once("18", "9" * 5_000, OPTIONS) == "unparsable"
    assert decide_at_once("11.8", "11.9", Options(relative_tolerance=0.1)) is None


def numerals():
    integers = st.integers(-50, 50)
    decimals = st.builds(
        lambda whole, digits: f"{whole}.{digits}", integers, st.sampled_from(["0", "5", "50", "25", "333333"])
    )
    fractions = st.builds(lambda above, below: f"{above}/{below}", integers, st.integers(1, 12))
    latex = st.builds(lambda above, below: rf"\frac{{{above}}}{{{below}}}", integers, st.integers(1, 12))
    return integers.map(str) | decimals | fractions | latex


@settings(max_examples=300, deadline=None, derandomize=True)
@given(numerals(), numerals())
def test_the_short_cut_says_what_the_long_way_says(gold, answer):
    at_once = decide_at_once(gold, answer, OPTIONS)
    if at_once is None or gold == answer:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "decide_at_once", lambda *_: None)
        assert decision.decide(gold, answer, OPTIONS) == at_once
