"""The audit without a model: who would have been retired by clean success, and the table."""

from __future__ import annotations

import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.evaluation.audit import audit, clean_success_questions
from megatron_seirenes.evaluation.audit_results import audit_markdown, audit_row


def record(step: int, problem: str, correct: bool | None, stage: str = "R1") -> dict:
    return {"step": step, "problem_id": problem, "stage": stage, "correct": correct}


RECORDS = [
    *[record(1, "a", True)] * 8,
    *[record(1, "b", True)] * 7,
    record(1, "b", False),
    record(1, "a", False, "R3"),
    record(1, "c", None, "R2"),
    *[record(2, "b", True)] * 8,
    *[record(3, "a", False)] * 8,
    *[record(4, "b", True)] * 8,
    *[record(5, "a", True)] * 8,
]


@pytest.mark.parametrize(("streak", "retired"), [(1, ["a", "b"]), (2, ["b"]), (3, [])])
def test_clean_success_retires_by_streaks_of_askings(streak, retired):
    assert clean_success_questions(RECORDS, "R1", streak) == retired


def test_a_row_of_the_table():
    row = audit_row("r", [1.0, 1.0, 7 / 8, 3 / 8, 0.0], 8)
    assert (row.mean, row.passed, row.all_right) == (pytest.approx(26 / 40), 0.8, 0.4)
    assert (row.one_wrong, row.below_half) == (0.2, 0.4)
    assert row.histogram == (1, 0, 0, 1, 0, 0, 0, 1, 2)
    text = audit_markdown([row], None)
    assert "| retired by | audit rollouts | mean@8 | pass@8 | 8/8 | 7/8 | <4/8 |" in text
    assert "| r | 40 | 65.0% | 80.0% | 40.0% | 20.0% | 40.0% |" in text


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(DataError, match=r"holds no config.yaml: there is no configuration"):
        audit(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(DataError, match=r"holds no policy: there is no policy; the run has not ended"):
        audit(tmp_path)
