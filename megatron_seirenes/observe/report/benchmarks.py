"""Benchmark tables with intervals (paper, Tables 1 and 2), from what an evaluation leaves in a run directory.

Read are `evaluation/results.json` and `summary.json` of `seirenes evaluate`, or else those of the last evaluation
during training (`evaluation/step-*`). Tables are in percent and points.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.report.markup import Markup, join, table

Results = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: benchmarks by name, suites by name, robustness pairs by name; `folder` is where it was found."""

    folder: Path
    benchmarks: Results
    suites: Results
    pairs: Results


def read_evaluation(run_dir: Path) -> Evaluation | None:
    """The evaluation of a run directory; None when it has none. Raises DataError naming a broken file."""
    folders = [run_dir / "evaluation", *sorted((run_dir / "evaluation").glob("step-*"), reverse=True)]
    folder = next((folder for folder in folders if (folder / "results.json").is_file()), None)
    if folder is None:
        return None
    summary = _read(folder / "summary.json") if (folder / "summary.json").is_file() else {}
    pairs = (summary.get("robustness") or {}).get("pairs", {})
    return Evaluation(folder, _read(folder / "results.json"), summary.get("suites", {}), pairs)


def benchmark_tables(found: Mapping[str, Evaluation]) -> Markup | None:
    """One column a run; None when no run was evaluated."""
    if not found:
        return None
    parts = [
        _table("Benchmarks: percent correct with 95 % intervals over questions", found, _benchmark_cells),
        _table("Suites: unweighted mean of their benchmarks, percent", found, _suite_cells),
        _table("Robustness: clean − perturbed, points (less is better)", found, _pair_cells),
    ]
    return join([part for part in parts if part])


def _table(
    caption: str, found: Mapping[str, Evaluation], cells: Callable[[Evaluation], Mapping[str, str]]
) -> Markup | None:
    by_run = {name: cells(evaluation) for name, evaluation in found.items()}
    keys = dict.fromkeys(key for shown in by_run.values() for key in shown)
    rows: Sequence[Sequence[str]] = [(key, *(shown.get(key, "–") for shown in by_run.values())) for key in keys]
    return table(caption, ("", *by_run), rows) if rows else None


def _benchmark_cells(evaluation: Evaluation) -> dict[str, str]:
    cells = {}
    for name, result in evaluation.benchmarks.items():
        metrics = result.get("metrics") or {result["metric"]: result}
        for metric, estimate in metrics.items():
            cells[f"{name}, {metric}"] = f"{_percent(estimate)} · {result['questions']:,} questions"
    return cells


def _suite_cells(evaluation: Evaluation) -> dict[str, str]:
    return {name: _percent(suite["average"]) for name, suite in evaluation.suites.items()}


def _pair_cells(evaluation: Evaluation) -> dict[str, str]:
    return {name: _interval(pair["degradation"], "+.1f") for name, pair in evaluation.pairs.items()}


def _percent(estimate: Mapping[str, float]) -> str:
    return _interval(estimate, ".1f")


def _interval(estimate: Mapping[str, float], digits: str) -> str:
    mean, low, high = (format(100 * estimate[key], digits) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not the results of an evaluation: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: not the results of an evaluation: an object is expected")
    return found
