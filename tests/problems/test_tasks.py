import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.chain_statements import parse_statements
from megatron_seirenes.problems.chains import chain_of
from megatron_seirenes.problems.tasks import TASKS, make_task_hints, make_task_problems, wrong_claim_hints
from megatron_seirenes.records import Problem

PROBLEMS = make_task_problems("chain_arithmetic", {}, "held_out", 200, seed=5)


@pytest.mark.parametrize("name", TASKS["chain_arithmetic"].hints)
def test_every_distractor_is_as_true_as_its_name(name):
    hints = make_task_hints(name, PROBLEMS, seed=1)
    for problem, hint in zip(PROBLEMS, hints, strict=True):
        chain = chain_of(problem)
        holds = all(statement.holds(chain) for statement in parse_statements(hint, chain))
        assert holds is name.startswith("true")


def test_distractors_depend_on_name_seed_and_problem_only():
    hints = wrong_claim_hints(PROBLEMS, 1)
    assert wrong_claim_hints(PROBLEMS[50:60], 1) == hints[50:60]
    assert wrong_claim_hints(PROBLEMS, 2) != hints
    assert len(set(hints)) == 11


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(DataError, match="unknown task 'sums'; known: chain_arithmetic"):
        make_task_problems("sums", {}, "train", 1, seed=0)
    with pytest.raises(DataError, match="unknown task distractors 'lies'; known: wrong_claims"):
        make_task_hints("lies", PROBLEMS, seed=0)


def test_distractors_for_foreign_problems_are_refused():
    with pytest.raises(DataError, match="gsm8k/1"):
        make_task_hints("wrong_claims", [Problem("gsm8k/1", "?", "1")], seed=0)
