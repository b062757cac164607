"""Tasks of reasoning-gym: splits, seeds, fences around its scoring. Most skip without the package."""

from __future__ import annotations

import builtins
import random

import pytest

from megatron_seirenes.config.schema import VerifierSection
from megatron_seirenes.errors import DataError, MissingComponentError
from megatron_seirenes.problems import reasoning_gym_tasks as room
from megatron_seirenes.problems.tasks import make_task_problems
from megatron_seirenes.verifier.judge import judge_pairs


@pytest.fixture
def package():
    return pytest.importorskip("reasoning_gym")


def test_the_first_questions_do_not_depend_on_the_count_and_splits_are_disjoint(package):
    before = random.getstate()
    few = make_task_problems("reasoning_gym/chain_sum", {"max_terms": 3}, "train", 5, 7)
    many = make_task_problems("reasoning_gym/chain_sum", {"max_terms": 3}, "train", 20, 7)
    held_out = make_task_problems("reasoning_gym/chain_sum", {"max_terms": 3}, "held_out", 20, 7)
    assert random.getstate() == before
    assert many[:5] == few and len({problem.id for problem in many}) == 20
    assert {p.question for p in many}.isdisjoint(p.question for p in held_out)
    assert few != make_task_problems("reasoning_gym/chain_sum", {"max_terms": 3}, "train", 5, 8)


@pytest.mark.parametrize("task", room.ANSWERABLE)
def test_the_verifier_knows_every_answer(package, task):
    problems = make_task_problems(f"reasoning_gym/{task}", {}, "train", 4, 0)
    pairs = [(problem.answer, f"so \\boxed{{{problem.answer}}}") for problem in problems]
    assert [verdict.reason for verdict in judge_pairs(pairs, VerifierSection())] == ["match"] * 4


def test_what_a_user_may_get_wrong(package):
    with pytest.raises(DataError, match=r"'reasoning_gym/sudoku' is unknown or has no single answer"):
        make_task_problems("reasoning_gym/sudoku", {}, "train", 1, 0)
    with pytest.raises(DataError, match=r"options \{'terms': 3\} are not taken"):
        make_task_problems("reasoning_gym/chain_sum", {"terms": 3}, "train", 1, 0)
    with pytest.raises(DataError, match=r"options \{'min_terms': -1\} are not taken"):
        make_task_problems("reasoning_gym/chain_sum", {"min_terms": -1}, "train", 1, 0)
    options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(DataError, match="500 different questions of split train are wanted"):
        make_task_problems("reasoning_gym/chain_sum", options, "train", 500, 0)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def no_package(name, *more, **keywords):
        if name == "reasoning_gym":
            raise ImportError("No module named 'reasoning_gym'")
        return real(name, *more, **keywords)

    monkeypatch.setattr(builtins, "__import__", no_package)
    with pytest.raises(MissingComponentError, match=r"pip install reasoning-gym==0.1.25"):
        make_task_problems("reasoning_gym/chain_sum", {}, "train", 1, 0)


def test_only_full_credit_for_its_own_answer_counts(monkeypatch):
    """Partial credit and a scorer that raises leave a question out."""

    def score(answer, entry):
        if entry["question"].endswith("3"):
            raise KeyError("boom")
        return 1.0 if entry["question"].endswith("1") else 0.99

    entries = [{"question": f"Q {n}", "answer": "1"} for n in range(60)]
    dataset = type("Dataset", (), {"__getitem__": lambda self, n: entries[n], "score_answer": staticmethod(score)})()
    monkeypatch.setattr(room, "_dataset", lambda *arguments: dataset)
    monkeypatch.setattr(room, "DRAWS_FOR_ONE", 60)
    (problem,) = make_task_problems("reasoning_gym/chain_sum", {}, "train", 1, 0)
    assert problem.question.endswith("1")
