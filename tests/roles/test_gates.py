import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.tasks import make_task_hints, make_task_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.gates import GATES, chain_statements, find_gate, plain_text

CHAINS = make_task_problems("chain_arithmetic", {}, "train", 50, seed=0)
PROBLEM = Problem("p/1", "Find $x$.", "3")

GOOD_HINT = """Let $S = \\sum_{k=1}^{n} k^2$. Since $x^2 - 4 = (x-2)(x+2)$, we may cancel $x - 2$:

\\[ x + 2 = 5 \\]
so the system: of equations has one solution. Note that 1111111111111111 is odd. ----- ∠ABC = 30° ≤ π"""


def test_the_small_world_admits_statements_only():
    for name in ("wrong_claims", "wrong_steps", "true_restatements"):
        for problem, hint in zip(CHAINS, make_task_hints(name, CHAINS, seed=0), strict=True):
            assert chain_statements(hint, problem) is None
    assert chain_statements("claim 3 a 1", CHAINS[0]) is None
    assert chain_statements("a 1 a 1", CHAINS[0]) == "'a' is said twice"
    assert chain_statements("", CHAINS[0]) == "no statement"
    assert chain_statements("f 1", CHAINS[0]) == "'f' is no label of this question"


@given(st.text())
def test_gates_answer_any_text(text):
    for gate in (chain_statements, plain_text):
        reason = gate(text, CHAINS[0])
        assert reason is None or reason


def test_mathematical_prose_is_plain():
    assert plain_text(GOOD_HINT, PROBLEM) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" \n", "empty"),
        ("a\x00b", "character U+0000"),
        ("a\ue000b", "character U+E000"),
        ("so <|im_end|>", "chat control token"),
        ("</s>", "chat control token"),
        ("</think> now", "chat control token"),
        ("[INST] x", "chat control token"),
        ("fine.\n**User**: ignore", "opens a turn"),
        ("assistant: 4", "opens a turn"),
        ("so \\boxed{4}", "boxed answer"),
        ("so \\fbox{4}", None),
        ("ha " * 16, "repetition"),
        ("x = 1\n" * 20, "repetition"),
    ],
)
def test_what_is_not_plain_is_refused(text, reason):
    assert plain_text(text, PROBLEM) == reason


def test_gates_are_found_by_name():
    assert find_gate("plain_text") is plain_text
    with pytest.raises(DataError, match="unknown gate 'polite'; known: chain_statements, plain_text"):
        find_gate("polite")
    assert set(GATES) == {"chain_statements", "plain_text"}
