"""Running benchmarks without a model: numbers, files, stopping and going on, pairs, suites, distractors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from scripted_policy import CHAT, BoxJudge, PlainRole, SeededEngine, draws_right, prompt_of

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import DataError, UsageError
from megatron_seirenes.evaluation.benchmarks import Evaluator
from megatron_seirenes.evaluation.results import pass_ks
from megatron_seirenes.observe.metrics import validate_row
from megatron_seirenes.rollouts.scheduler import CollectionStopped

POLICY = {"policy": "p1"}


def questions(folder: Path, count: int = 6, name: str = "q", **more: str) -> dict[str, str]:
    path = folder / f"{name}.jsonl"
    rows = [{"id": f"a{n}", "question": f"{name} {n}", "answer": "1", **more} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"path": str(path)}


def config(benchmarks: dict, game: str = "seirenes", **evaluation) -> Config:
    return Config.model_validate({"game": {"name": game}, "evaluation": {"benchmarks": benchmarks, **evaluation}})


def evaluator(settings: Config, engine: SeededEngine, **more) -> Evaluator:
    roles = more.pop("roles", {"reasoner": PlainRole(), "adversary": PlainRole()})
    return Evaluator(settings, roles, engine, more.pop("judge", BoxJudge()), CHAT, **more)


def answers(out: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (out / f"answers-{name}.jsonl").read_text().splitlines()]


def test_results_metrics_and_files(tmp_path):
    settings = config({"b": {"problems": questions(tmp_path), "samples": 4}, "one": {"problems": questions(tmp_path)}})
    results = evaluator(settings, SeededEngine(draws_right(0.5))).run_all(tmp_path / "out")
    kept = answers(tmp_path / "out", "b")
    assert [(a["problem_id"], a["sample"]) for a in kept] == [(f"q/a{n}", s) for n in range(6) for s in range(4)]
    share = sum(a["correct"] for a in kept) / 24
    row = results.metrics()
    assert row["evaluation/b/avg@4"] == pytest.approx(share)
    assert set(row) == {f"evaluation/b/{m}" for m in ("avg@4", "avg@4/low", "avg@4/high", "pass@4", "maj@4")} | {
        f"evaluation/one/{m}" for m in ("avg@1", "avg@1/low", "avg@1/high")
    }
    validate_row({"step": 1, **row})
    stored = json.loads((tmp_path / "out" / "results.json").read_text())["b"]
    assert stored["metric"] == "avg@4" and stored["questions"] == 6 and stored["mean"] == pytest.approx(share)
    assert list(stored["success"]) == [f"q/a{n}" for n in range(6)]
    assert list(stored["metrics"]) == ["avg@4", "pass@2", "pass@4", "maj@4"]
    lines = list(csv.DictReader((tmp_path / "out" / "results.csv").open()))
    assert [line["metric"] for line in lines if line["benchmark"] == "b"] == list(stored["metrics"])
    assert f"| b | 6 | 4 | {100 * share:.1f} (" in (tmp_path / "out" / "results.md").read_text()


def test_the_ks_of_pass():
    assert [pass_ks(k) for k in (1, 2, 3, 8, 32)] == [[], [2], [2, 3], [2, 4, 8], [2, 4, 8, 16, 32]]


def test_killed_anywhere_and_gone_on_it_is_the_same_and_asks_nothing_twice(tmp_path):
    settings = config({"b": {"problems": questions(tmp_path), "samples": 4}})
    whole = evaluator(settings, SeededEngine(draws_right(0.5))).run_all(tmp_path / "whole", POLICY)
    for steps in range(7):
        out = tmp_path / f"killed-{steps}"
        first = SeededEngine(draws_right(0.5), slots=3, stop_after=steps)
        with pytest.raises(KeyboardInterrupt):
            evaluator(settings, first).run_all(out, POLICY)
        kept = {a["problem_id"] for a in answers(out, "b")}
        second = SeededEngine(draws_right(0.5), slots=2)
        assert evaluator(settings, second).run_all(out, POLICY) == whole
        assert kept.isdisjoint(request.problem_id for request in second.asked)
        assert len(second.asked) == 24 - 4 * len(kept)
        for file in ("answers-b.jsonl", "results.json", "summary.json", "results.md"):
            assert (out / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    third = SeededEngine(draws_right(0.5))
    assert evaluator(settings, third).run_all(tmp_path / "whole", POLICY) == whole
    assert third.asked == []


def test_a_question_that_was_cut_off_while_it_was_written_is_asked_again(tmp_path):
    settings = config({"b": {"problems": questions(tmp_path), "samples": 2}})
    whole = evaluator(settings, SeededEngine(draws_right(0.5))).run_all(tmp_path / "out", POLICY)
    file = tmp_path / "out" / "answers-b.jsonl"
    content = file.read_bytes()
    for cut in (1, len(content) // 2, len(content) - 2):
        file.write_bytes(content[:cut])
        assert evaluator(settings, SeededEngine(draws_right(0.5))).run_all(tmp_path / "out", POLICY) == whole
        assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy": "p2"}, "policy"),
        ({"samples": 3}, "samples"),
        ({"max_tokens": 7}, "tokens"),
        ({"extraction": "choice"}, "verifier"),
    ],
)
def test_answers_of_something_else_are_refused(tmp_path, change, named):
    benchmark = {"problems": questions(tmp_path), "samples": 2}
    evaluator(config({"b": benchmark}), SeededEngine(draws_right(0.5))).run_all(tmp_path / "out", POLICY)
    policy = {"policy": change.pop("policy", "p1")}
    engine = SeededEngine(draws_right(0.5))
    with pytest.raises(UsageError, match=f"answers-b.jsonl: its answers were made with another {named};"):
        evaluator(config({"b": benchmark | change}), engine).run_all(tmp_path / "out", policy)
    assert engine.asked == []


def test_without_an_identity_older_answers_are_replaced(tmp_path):
    settings = config({"b": {"problems": questions(tmp_path)}})
    evaluator(settings, SeededEngine(draws_right(0.0))).run_all(tmp_path / "out")
    engine = SeededEngine(draws_right(1.0))
    assert evaluator(settings, engine).run_all(tmp_path / "out").benchmarks["b"].estimate.mean == 1.0
    assert len(engine.asked) == 6


def test_told_to_stop_it_keeps_what_is_done(tmp_path):
    engine = SeededEngine(draws_right(0.5), slots=4)
    settings = config({"b": {"problems": questions(tmp_path), "samples": 4}})
    stop = evaluator(settings, engine, should_stop=lambda: len(engine.waiting) <= 12)
    with pytest.raises(CollectionStopped):
        stop.run_all(tmp_path / "out", POLICY)
    assert {a["problem_id"] for a in answers(tmp_path / "out", "b")} == {"q/a0", "q/a1", "q/a2"}


@pytest.mark.parametrize("game", ["seirenes", "grpo"])
def test_the_policys_own_hint_stands_beside_the_question(tmp_path, game):
    benchmark = {"problems": questions(tmp_path), "samples": 2, "distractors": {"kind": "policy", "max_tokens": 9}}
    engine = SeededEngine(lambda request: "it is 7" if request.role == "adversary" else "\\boxed{1}")
    evaluator(config({"b": benchmark}, game), engine).run_all(tmp_path / "out", POLICY)
    hints = [request for request in engine.asked if request.role == "adversary"]
    assert len(hints) == 6 and {request.sampling.max_tokens for request in hints} == {9}
    under = [prompt_of(request) for request in engine.asked if request.role == "reasoner"]
    assert sorted(under) == sorted([f"q {n}|it is 7" for n in range(6)] * 2)
    assert {a["hint"] for a in answers(tmp_path / "out", "b")} == {"it is 7"}


def test_refused_hints_leave_questions_unanswered_and_are_not_asked_again(tmp_path):
    benchmark = {"problems": questions(tmp_path), "distractors": {"kind": "policy"}}
    engine = SeededEngine(lambda request: "" if request.problem_id == "q/a2" else "\\boxed{1}")
    out = tmp_path / "out"
    results = evaluator(config({"b": benchmark}), engine).run_all(out, POLICY)
    assert results.benchmarks["b"].unanswered == ("q/a2",)
    assert len(results.benchmarks["b"].success) == 5
    again = SeededEngine(draws_right(0.5))
    assert evaluator(config({"b": benchmark}), again).run_all(out, POLICY) == results
    assert again.asked == []
    roles = {"reasoner": PlainRole(), "adversary": PlainRole(refuse="too rude")}
    with pytest.raises(DataError, match="no question was answered"):
        evaluator(config({"b": benchmark}), SeededEngine(draws_right(1.0)), roles=roles).run_all(tmp_path / "none")
    assert {a["refused"] for a in answers(tmp_path / "none", "b")} == {"too rude"}


def test_hints_of_a_file_and_of_the_questions_own_column(tmp_path):
    source = questions(tmp_path, 2, distractor="rain")
    hints = tmp_path / "hints.jsonl"
    hints.write_text('{"problem_id": "q/a0", "hint": "snow"}\n\n{"problem_id": "q/a1", "hint": "hail"}\n')
    settings = config(
        {
            "file": {"problems": source, "distractors": {"kind": "file", "path": str(hints)}},
            "column": {"problems": source, "distractors": {"kind": "column"}},
        }
    )
    engine = SeededEngine(draws_right(1.0))
    evaluator(settings, engine).run_all(tmp_path / "out")
    assert [prompt_of(request) for request in engine.asked] == ["q 0|snow", "q 1|hail", "q 0|rain", "q 1|rain"]
    hints.write_text('{"problem_id": "q/a0", "hint": "snow"}\n')
    with pytest.raises(DataError, match=r"hints.jsonl: no hint for question q/a1 \(1 questions lack one\)"):
        evaluator(settings, engine).run_all(tmp_path / "out")
    hints.write_text('{"problem_id": "q/a0"}\n')
    with pytest.raises(DataError, match=r"hints.jsonl: row 1: expected an object with problem_id and hint"):
        evaluator(settings, engine).run_all(tmp_path / "out")


def test_degradation_and_suites(tmp_path):
    """Clean right on a0 to a3, perturbed right on a0 alone: 4/6 − 1/6 = 50 points."""
    right = {"clean": 4, "p": 1}
    engine = SeededEngine(
        lambda request: f"\\boxed{{{int(int(request.problem_id[-1]) < right[request.problem_id.split('/')[0]])}}}"
    )
    settings = config(
        {
            "clean": {"problems": questions(tmp_path, name="clean"), "samples": 2},
            "p": {"problems": questions(tmp_path, name="p"), "samples": 2, "clean": "clean"},
        },
        suites={"both": ["clean", "p"]},
    )
    results = evaluator(settings, engine).run_all(tmp_path / "out")
    (pair,) = results.degradations
    assert (pair.clean, pair.perturbed, pair.questions) == (pytest.approx(4 / 6), pytest.approx(1 / 6), 6)
    assert pair.difference.mean == pytest.approx(0.5)
    assert results.suites[0].average.mean == pytest.approx(5 / 12)
    text = (tmp_path / "out" / "results.md").read_text()
    assert "| both | clean | p | AVG |" in text and "| % | 66.7 | 16.7 | 41.7 (" in text
    assert "| p | 6 | 66.7 | 16.7 | +50.0 (" in text and "| Avg |  |  |  | +50.00 |" in text
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["robustness"]["average"] == pytest.approx(0.5)


def test_pairs_without_common_questions_are_refused(tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "zz", "question": "o", "answer": "1"}\n')
    benchmarks = {"a": {"problems": questions(tmp_path)}, "b": {"problems": {"path": str(other)}, "clean": "a"}}
    with pytest.raises(DataError, match=r"benchmarks.b.clean: a has none of its questions \(ids like 'zz' and 'a0'\)"):
        evaluator(config(benchmarks), SeededEngine(draws_right(1.0))).run_all(tmp_path / "out")


def test_a_benchmark_may_extract_in_its_own_way(tmp_path):
    path = tmp_path / "mc.jsonl"
    path.write_text('{"question": "Q", "answer": "B"}\n{"question": "R", "answer": "A"}\n')
    engine = SeededEngine(lambda request: "so the answer is (B)" if "Q" in prompt_of(request) else "who knows")
    settings = config({"mc": {"problems": {"path": str(path)}, "extraction": "choice"}})
    result = evaluator(settings, engine).run_all(tmp_path / "out").benchmarks["mc"]
    assert list(result.success.values()) == [1.0, 0.0] and result.no_answer == 0.5
