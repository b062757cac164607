import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.chains import (
    LONGEST,
    MODULUS,
    OPERANDS,
    OPERATIONS,
    SHORTEST,
    Chain,
    ChainStep,
    chain_of,
    chain_problem,
    make_chain_problems,
    split_of,
    templates,
)
from megatron_seirenes.records import Problem

steps = st.builds(ChainStep, st.sampled_from(OPERATIONS), st.sampled_from(OPERANDS))
chains = st.builds(
    Chain,
    st.integers(0, MODULUS - 1),
    st.lists(steps, min_size=1, max_size=6).map(tuple),
)


def worked_as_text(text: str) -> int:
    """An independent solver: reads the question's words and works them with Python's own operators."""
    start, *words = text.split()
    value = int(start)
    for operation, operand in zip(words[1::3], words[2::3], strict=True):
        value = eval(f"({value} {operation} {operand}) % {MODULUS}")
    return value


def test_the_example_of_the_docstring():
    chain = Chain(9, (ChainStep("*", 5), ChainStep("-", 3), ChainStep("*", 4)))
    assert chain.text == "9 a * 5 b - 3 c * 4"
    assert chain.values == (1, 9, 3)
    assert chain.answer == 3
    assert chain.template == "*-*"


@given(chains)
def test_the_answer_is_what_the_text_says(chain):
    assert chain.answer == worked_as_text(chain.text)


@given(chains)
def test_a_problem_gives_its_chain_back(chain):
    problem = chain_problem(chain)
    assert chain_of(problem) == chain
    assert problem.answer == str(chain.answer)


@given(chains, chains)
def test_ids_are_equal_exactly_when_chains_are(one, other):
    assert (chain_problem(one).id == chain_problem(other).id) == (one == other)


def test_train_and_held_out_share_no_template_at_any_length():
    for length in range(SHORTEST, LONGEST + 1):
        train, held_out = set(templates("train", length)), set(templates("held_out", length))
        assert train
        assert held_out
        assert not train & held_out
        assert len(train) + len(held_out) == len(OPERATIONS) ** length
    share = sum(len(templates("held_out", n)) for n in range(SHORTEST, LONGEST + 1)) / sum(3**n for n in range(3, 7))
    assert 0.18 < share < 0.28


def test_the_split_is_pinned():
    """A change here would put questions seen in the training of existing runs into their held-out sets."""
    assert templates("held_out", 3) == ("++*", "+-+", "-+-", "*++", "*-*")
    assert split_of("*") == split_of("-") == "train"


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_problems_are_different_of_their_split_and_stable(split):
    problems = make_chain_problems({}, split, 500, seed=3)
    assert len({problem.id for problem in problems}) == 500
    assert {split_of(chain_of(problem).template) for problem in problems} == {split}
    assert {len(chain_of(problem).steps) for problem in problems} == {3, 4, 5, 6}
    assert make_chain_problems({}, split, 100, seed=3) == problems[:100]
    assert make_chain_problems({}, split, 100, seed=4) != problems[:100]


def test_the_first_problem_of_seed_0_is_pinned():
    assert make_chain_problems({}, "train", 1, seed=0)[0].question == "7 a * 3 b * 2 c - 4 d - 4"


def test_options_bound_the_length():
    problems = make_chain_problems({"min_steps": 4, "max_steps": 5}, "train", 60, seed=0)
    assert {len(chain_of(problem).steps) for problem in problems} == {4, 5}


@pytest.mark.parametrize(
    ("options", "count", "named"),
    [
        ({"steps": 3}, 5, "unknown options steps"),
        ({"min_steps": 5, "max_steps": 4}, 5, "min_steps is 5 and max_steps 4"),
        ({"max_steps": 7}, 5, "max_steps 7"),
        ({"max_steps": True}, 5, "max_steps True"),
        ({"max_steps": 3}, 100_000, "give only 15488"),
    ],
)
def test_options_that_cannot_be_met_are_named(options, count, named):
    with pytest.raises(DataError, match=named):
        make_chain_problems(options, "train", count, seed=0)


def test_every_chain_can_be_asked_for():
    assert len(make_chain_problems({"min_steps": 1, "max_steps": 1}, "train", 132, seed=0)) == 132


def test_held_out_has_no_chains_too_short_to_be_asked():
    with pytest.raises(DataError, match="give only 0"):
        make_chain_problems({"min_steps": 1}, "held_out", 5, seed=0)


def test_a_foreign_problem_has_no_chain():
    with pytest.raises(DataError, match="x/1: not a chain_arithmetic problem"):
        chain_of(Problem("x/1", "1 + 1", "2"))


@settings(max_examples=20)
@given(st.integers(0, 2**40))
def test_any_seed_makes_problems(seed):
    assert len(make_chain_problems({}, "held_out", 5, seed)) == 5
