"""Rumours beside questions of the small world: how many, how true, and that nothing else changes."""

from __future__ import annotations

import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.tasks import make_task_problems


def make(count: int, **options):
    return make_task_problems("chain_arithmetic", options, "train", count, 0)


def test_shares_and_truth_are_as_asked():
    problems = make(3_000, notes=0.7, note_truth=0.9)
    noted = [problem for problem in problems if "note" in problem.meta]
    true = [problem for problem in noted if problem.meta["note"] == f"claim {problem.answer}"]
    assert len(noted) / len(problems) == pytest.approx(0.7, abs=0.03)
    assert len(true) / len(noted) == pytest.approx(0.9, abs=0.02)
    assert all(problem.meta["note"].split()[1].isdigit() for problem in noted)


def test_the_questions_are_those_without_notes_and_a_note_follows_its_question():
    plain, noted = make(50), make(50, notes=1.0)
    assert [(p.id, p.question, p.answer) for p in plain] == [(p.id, p.question, p.answer) for p in noted]
    assert not any("note" in problem.meta for problem in plain)
    assert make(20, notes=1.0) == noted[:20]


@pytest.mark.parametrize("options", [{"notes": 1.5}, {"notes": "x"}, {"notes": True}, {"note_truth": -0.1}])
def test_shares_beyond_one_are_refused(options):
    with pytest.raises(DataError, match="shares from 0 to 1"):
        make(5, **options)
