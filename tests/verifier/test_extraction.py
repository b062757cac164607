r"""Which part of a response is the answer, policy by policy."""

import time

import pytest

from megatron_seirenes.verifier.extraction import POLICIES, WINDOW, boxed, choice, choice_letter, final_number


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{18}", "18"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"first \boxed{1}, no: \boxed{2}. The 3 is prose.", "2"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{5} and then \boxed{6", "5"),
        (r"\boxed{ unfinished \boxed{7}", "7"),
        (r"{\frac{1{ \boxed{5}", "5"),
        ("\\boxed{\n 4 \n}", "4"),
        (r"\\boxed{5}", "5"),
        (r"<think>\boxed{1}</think> \boxed{2}", "2"),
        (r"</think> a </think> \boxed{3}", "3"),
    ],
)
def test_the_last_complete_box_is_the_answer(response, answer):
    assert boxed(response) == answer


@pytest.mark.parametrize(
    "response",
    [
        "",
        "18",
        "the answer is 18",
        r"\boxed{18",
        r"\boxed{}",
        r"\boxed{ }",
        r"\boxed 18",
        r"<think>\boxed{18}</think> so 18",
        r"\boxed\{5\}",
    ],
)
def test_without_a_complete_box_there_is_no_answer(response):
    assert boxed(response) is None


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("16 - 3 = 13\n#### 18", "18"),
        ("#### 1\n#### 1,234.\nbye", "1,234"),
        (r"no marker \boxed{4}", "4"),
        ("no marker, 4", None),
        ("####", None),
    ],
)
def test_final_number_follows_the_marker(response, answer):
    assert final_number(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{(b)}", "B"),
        (r"\boxed{\text{(C) } 12}", "C"),
        (r"\boxed{D. mitochondria}", "D"),
        ("Therefore the answer is (C).", "C"),
        ("Answer: A, not B", "A"),
        (r"answer is A but \boxed{B}", "B"),
        ("A man walks", None),
        ("the answer is Apple", None),
        (r"\boxed{12}", None),
        (r"\boxed{Apple}", None),
    ],
)
def test_choice_is_a_letter(response, answer):
    assert choice(response) == answer


def test_the_letter_of_a_gold():
    assert choice_letter("(A)") == "A"
    assert choice_letter("Apple") is None


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("piece", [r"\boxed{", "{", "}", r"\boxed{}", "####", "</think>", "answer is ", "\0", "\ud800"])
def test_extraction_is_linear_and_total(policy, piece):
    began = time.process_time()
    POLICIES[policy](piece * (WINDOW // len(piece) + 5))
    assert time.process_time() - began < 3.0
