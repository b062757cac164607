import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.problems.gold import after_marker, last_boxed, letter, number, without_dollars, without_wrapping


@pytest.mark.parametrize(
    ("text", "answer"),
    [("so 9 * 2\n#### 18", "18"), ("#### 1,080 ", "1080"), ("#### 1,234,567", "1234567"), ("#### 1 #### 2", "2")],
)
def test_after_marker(text, answer):
    assert after_marker(text) == answer


def test_a_missing_marker_is_refused():
    with pytest.raises(ValueError, match="no ####"):
        after_marker("18")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{1.6} cm", "1.6"),
        (r"\boxed{1} then \boxed{ \frac{1}{2} }.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{x : x > 0\right.}", r"\left\{x : x > 0\right."),
    ],
)
def test_last_boxed(text, answer):
    assert last_boxed(text) == answer


@pytest.mark.parametrize("text", ["no box", r"\boxed 5", r"\boxed{1} and \boxed{2", "\\boxed{1\\"])
def test_a_solution_without_a_closed_box_is_refused(text):
    with pytest.raises(ValueError, match="boxed"):
        last_boxed(text)


@given(st.text("ab{}$", max_size=30).filter(lambda text: text.count("{") == text.count("}")))
def test_last_boxed_agrees_with_counting_braces(inner):
    depths = [inner[: end + 1].count("{") - inner[: end + 1].count("}") for end in range(len(inner))]
    if min(depths, default=0) >= 0:
        assert last_boxed(f"x \\boxed{{{inner}}} y}}") == inner.strip()


@pytest.mark.parametrize(
    ("value", "text"),
    [(145.0, "145"), (0.5, "0.5"), (7, "7"), ("025", "25"), ("-03", "-3"), ("0", "0"), ("p - q", "p - q")],
)
def test_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("text", "plain"),
    [("$2^{u-2}$", "2^{u-2}"), ("$$3$$", "3"), ("$a$, $b$", "$a$, $b$"), ("odd $n$", "odd $n$"), ("3", "3"), ("$", "")],
)
def test_without_dollars(text, plain):
    assert without_dollars(text) == plain


def test_letter():
    assert [letter(0), letter(25)] == ["A", "Z"]
    for index in (-1, 26):
        with pytest.raises(ValueError, match="outside A to Z"):
            letter(index)


def test_without_wrapping():
    wrappings = (("Solve:\n", "\nEnd"),)
    assert without_wrapping("Solve:\nq ?\nEnd", wrappings) == "q ?"
    assert without_wrapping("Solve:\nq ?", wrappings) == "Solve:\nq ?"
