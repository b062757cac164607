"""Preparing a training set without a model: cleaning, choosing, and what is written about it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from scripted_policy import CHAT, BoxJudge, PlainRole, SeededEngine, draws_right

from megatron_seirenes.config.schema import Config, ProblemSource
from megatron_seirenes.errors import ConfigError, DataError
from megatron_seirenes.evaluation import prepare as room
from megatron_seirenes.evaluation.asking import Policy
from megatron_seirenes.evaluation.prepare import clean_pool, prepare
from megatron_seirenes.problems.readers import read_all, read_problems


def write(path: Path, *rows: tuple[str, str]) -> str:
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows))
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """40 questions of two sources, with two duplicates, a conflict and one that a benchmark asks."""
    first = [(f"Question {n} about apples", str(n)) for n in range(20)]
    second = [(f"Problem {n} about pears", str(n)) for n in range(16)]
    second += [("question 3 about APPLES.", "3.0"), ("Question 4 about apples", "5"), ("Problem 0 about pears", "0")]
    sources = [write(tmp_path / "first.jsonl", *first), write(tmp_path / "second.jsonl", *second)]
    asked = write(tmp_path / "bench.jsonl", ("problem 7 about pears?", "7"))
    return Config.model_validate(
        {
            "problems": {"train": [{"path": source} for source in sources]},
            "evaluation": {"benchmarks": {"bench": {"problems": {"path": asked}}}},
            "prepare": {"out": str(tmp_path / "out" / "set.jsonl"), "count": 12, "rollouts": 8, "buckets": 4},
        }
    )


def counts(config: Config, problems, path: Path) -> dict[str, int]:
    """Easy, hard and in between, so that every bucket holds more than its share."""
    return {problem.id: index % 9 for index, problem in enumerate(problems)}


def test_cleaning(config):
    pool = read_all(config.problems.train)
    kept, removals = clean_pool(config, pool)
    assert Counter(r.reason for r in removals) == {"exact duplicate": 2, "conflicting answers": 2, "overlap": 1}
    assert {(r.problem_id, r.other) for r in removals if r.reason == "exact duplicate"} == {
        ("second/17", "first/4"),
        ("second/19", "second/1"),
    }
    assert [r.benchmark for r in removals if r.reason == "overlap"] == ["bench"]
    assert len(kept) == len(pool) - len(removals) == 34


def test_a_balanced_set_with_its_provenance_and_a_report(config, monkeypatch):
    monkeypatch.setattr(room, "_right_answers", counts)
    preparation = prepare(config)
    out = Path(str(config.prepare.out))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 12
    assert Counter(row["provenance"]["bucket"] for row in rows) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert all(
        row["provenance"]["rollouts"] == 8 and row["provenance"]["source"] in ("first", "second") for row in rows
    )
    again = read_problems(ProblemSource(path=str(out)))
    assert [problem.id for problem in again] == [f"set/{row['id']}" for row in rows]
    assert again[0].meta["provenance"] == rows[0]["provenance"]
    report = json.loads(out.with_name("report.json").read_text())
    assert report["pool"] == {"first": 20, "second": 19} and report["measured"] == 34
    assert report["overlap"] == {"bench": 1} and report["buckets"]["chosen"] == [3, 3, 3, 3]
    assert sum(report["right_answers"].values()) == 34
    assert "| conflicting answers | 2 |" in out.with_name("report.md").read_text()
    removed = [json.loads(line) for line in out.with_name("removed.jsonl").read_text().splitlines()]
    assert len(removed) == 5
    first = out.read_bytes()
    assert prepare(config) == preparation and out.read_bytes() == first


def test_an_interrupted_pass_goes_on_and_a_second_run_asks_nothing(config, monkeypatch):
    engines: list[SeededEngine] = []

    def open_scripted(config, directory, roles, stack):
        roles = {"reasoner": PlainRole()}
        return Policy(config, roles, engines[-1], CHAT), {"policy": "p1"}

    monkeypatch.setattr(room, "open_for_questions", open_scripted)
    monkeypatch.setattr(room, "open_judge", lambda config, stack: BoxJudge())
    out = Path(str(config.prepare.out))
    engines.append(SeededEngine(draws_right(0.5), slots=5, stop_after=20))
    with pytest.raises(KeyboardInterrupt):
        prepare(config)
    kept = {json.loads(line)["problem_id"] for line in out.with_name("answers.jsonl").read_text().splitlines()}
    assert 0 < len(kept) < 34 and not out.exists()
    engines.append(SeededEngine(draws_right(0.5)))
    prepare(config)
    assert len(engines[-1].asked) == 8 * (34 - len(kept))
    assert kept.isdisjoint(request.problem_id for request in engines[-1].asked)
    first = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    engines.append(SeededEngine(draws_right(0.5)))
    prepare(config)
    assert engines[-1].asked == [] and {path.name: path.read_bytes() for path in out.parent.iterdir()} == first


def test_what_is_missing_or_too_much_is_said(config):
    with pytest.raises(ConfigError) as caught:
        prepare(Config.model_validate({}))
    assert caught.value.faults == ("problems.train: is missing", "prepare.out: is missing")
    more = config.model_copy(update={"prepare": config.prepare.model_copy(update={"count": 35})})
    with pytest.raises(DataError, match=r"prepare.count: 35 questions are wanted, 34 are left"):
        prepare(more)
