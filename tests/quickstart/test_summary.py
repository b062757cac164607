"""The tables of a quickstart, from results as evaluations write them."""

import json

import pytest

from megatron_seirenes.errors import UsageError
from megatron_seirenes.quickstart.run import claim, merged, slug, token_progress, warmup_progress
from megatron_seirenes.quickstart.summary import compare, read_results, summary_markdown


def results(success: float) -> dict:
    questions = {f"q{i}": success for i in range(50)}
    entry = {"mean": success, "low": success, "high": success, "questions": 50, "success": questions}
    return {"clean": entry, "wrong_claims": entry, "own_hints": entry}


def test_differences_are_paired_over_shared_questions(tmp_path):
    for name, value in (("before", 0.25), ("after", 0.75)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(results(value)))
    read = read_results({"before": tmp_path / "before", "after": tmp_path / "after"})
    del read["after"]["own_hints"]["success"]["q0"]
    comparisons = compare(read, [("after", "before")])
    assert [c.difference.mean for c in comparisons] == pytest.approx([0.5, 0.5, 0.5])
    text = summary_markdown(read, comparisons)
    assert "| after − before | +50.0 (+50.0 to +50.0) |" in text and "25.0 (25.0–25.0)" in text


def test_progress_is_read_from_what_the_commands_leave_behind(tmp_path):
    log = tmp_path / "log"
    assert warmup_progress(log, [100, 100]) == 0.0
    log.write_text(
        "warm-up 1/2 | update 50/100 | loss 1\nwarm-up 1/2 | done after 60 updates\nwarm-up 2/2 | update 50/100 | x\n"
    )
    assert warmup_progress(log, [100, 100]) == 0.75
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 1, "tokens/generated": 25}\n{"step": 2, "tokens/gen')
    assert token_progress(metrics, 100) == 0.25


def test_a_folder_belongs_to_one_quickstart(tmp_path):
    claim(tmp_path / "new", seed=1)
    claim(tmp_path / "new", seed=1)
    with pytest.raises(UsageError, match="another seed"):
        claim(tmp_path / "new", seed=2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty"):
        claim(tmp_path / "other", seed=1)


def test_names_and_merging():
    assert slug("Seirênes") == "seirenes" and slug("after warm-up") == "after-warm-up"
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}) == {"a": {"b": 3, "c": 2}, "d": 4}
