import json
from pathlib import Path

import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.report import write_report
from megatron_seirenes.observe.report.benchmarks import benchmark_tables, read_evaluation


def estimate(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}


def write_evaluation(folder: Path, mean: float) -> None:
    folder.mkdir(parents=True)
    metrics = {"avg@4": estimate(mean), "pass@4": estimate(mean + 0.1)}
    results = {"aime": {"metric": "avg@4", "questions": 30, **estimate(mean), "metrics": metrics}}
    pair = {"clean": 0.6, "perturbed": 0.5, "questions": 30, "degradation": estimate(0.1)}
    summary = {"suites": {"math": {"average": estimate(0.5)}}, "robustness": {"pairs": {"gsmir": pair}}}
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "summary.json").write_text(json.dumps(summary))


def test_benchmarks_suites_and_degradations_stand_beside_one_another(tmp_path: Path) -> None:
    for name, mean in (("a", 0.5), ("b", 0.25)):
        write_evaluation(tmp_path / name / "evaluation", mean)
    found = {name: read_evaluation(tmp_path / name) for name in ("a", "b")}
    page = benchmark_tables({name: one for name, one in found.items() if one is not None})
    assert page is not None
    for cell in (
        '<th scope="row">aime, avg@4</th><td>50.0 [45.0, 55.0] · 30 questions</td><td>25.0 [20.0, 30.0] · 30',
        '<th scope="row">aime, pass@4</th><td>60.0',
        '<th scope="row">math</th><td>50.0 [45.0, 55.0]',
        '<th scope="row">gsmir</th><td>+10.0 [+5.0, +15.0]',
    ):
        assert cell in page


def test_the_last_evaluation_of_a_training_is_taken(tmp_path: Path) -> None:
    for step, mean in ((10, 0.1), (20, 0.2)):
        write_evaluation(tmp_path / "evaluation" / f"step-{step:06d}", mean)
    found = read_evaluation(tmp_path)
    assert found is not None and found.folder.name == "step-000020"
    assert read_evaluation(tmp_path / "nowhere") is None


def test_a_run_that_was_only_evaluated_can_be_reported(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "only" / "evaluation", 0.5)
    page = write_report([tmp_path / "only"]).read_text()
    assert "50.0 [45.0, 55.0]" in page
    assert "Success, clean and hinted" not in page


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "results.json").write_text("[")
    with pytest.raises(DataError, match=r"results\.json"):
        read_evaluation(tmp_path)
