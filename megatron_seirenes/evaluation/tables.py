"""The results of an evaluation for people: Markdown and CSV, in percent and in points."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from statistics import fmean

from megatron_seirenes.evaluation.results import Results, results_json, summary_json
from megatron_seirenes.evaluation.statistics import Estimate


def write_results(results: Results, out: Path) -> None:
    """Writes results.json, summary.json, results.csv and results.md into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results_json(results), indent=1), encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary_json(results), indent=1), encoding="utf-8")
    (out / "results.csv").write_text(results_csv(results), encoding="utf-8")
    (out / "results.md").write_text(results_markdown(results), encoding="utf-8")


def results_csv(results: Results) -> str:
    """A line a benchmark and metric, as fractions."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["benchmark", "questions", "metric", "mean", "low", "high"])
    for name, result in results.benchmarks.items():
        for metric, estimate in result.metrics.items():
            lines.writerow([name, len(result.success), metric, estimate.mean, estimate.low, estimate.high])
    return text.getvalue()


def results_markdown(results: Results) -> str:
    """Every table that there is something for: benchmarks, suites, robustness."""
    parts = [_benchmark_table(results)]
    parts += [
        markdown_table([suite.name, *suite.benchmarks, "AVG"], [_suite_row(suite.benchmarks.values(), suite.average)])
        for suite in results.suites
    ]
    if results.degradations:
        parts.append(_robustness_table(results))
    return "\n".join(parts)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, ended by a line break."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def decimals(value: float, places: int = 1, sign: str = "-") -> str:
    """A number with so many decimals; with `sign` "+" always signed. An exact half goes to the even digit.

    The mean of two percentages often is one (85.45). Binary fractions lie on either side of it by chance; the paper's
    tables have the even digit.
    """
    return f"{Decimal(repr(round(value, places + 8))):{sign}.{places}f}"


def percent(value: float) -> str:
    """A fraction in percent with one decimal, as the paper prints it."""
    return decimals(100 * value)


def points(value: float, places: int = 1) -> str:
    """A difference of fractions in points, always signed."""
    return decimals(100 * value, places, "+")


def percent_interval(estimate: Estimate) -> str:
    """A fraction in percent with its interval."""
    return f"{percent(estimate.mean)} ({percent(estimate.low)}–{percent(estimate.high)})"


def points_interval(estimate: Estimate) -> str:
    """A difference in points with its interval."""
    return f"{points(estimate.mean)} ({points(estimate.low)} to {points(estimate.high)})"


def _benchmark_table(results: Results) -> str:
    rows = []
    for name, result in results.benchmarks.items():
        k = result.samples
        more = [percent_interval(result.metrics[metric]) if k > 1 else "" for metric in (f"pass@{k}", f"maj@{k}")]
        counts = [str(len(result.success)), str(k)]
        rows.append(
            [
                name,
                *counts,
                percent_interval(result.estimate),
                *more,
                percent(result.truncated),
                percent(result.no_answer),
            ]
        )
    header = ["benchmark", "questions", "k", "avg@k, %", "pass@k, %", "maj@k, %", "truncated, %", "no answer, %"]
    return markdown_table(header, rows)


def _suite_row(means: Iterable[float], average: Estimate) -> list[str]:
    return ["%", *map(percent, means), percent_interval(average)]


def _robustness_table(results: Results) -> str:
    pairs = results.degradations
    rows = [
        [pair.name, str(pair.questions), percent(pair.clean), percent(pair.perturbed), points_interval(pair.difference)]
        for pair in pairs
    ]
    rows.append(["Avg", "", "", "", points(fmean(pair.difference.mean for pair in pairs), 2)])
    return markdown_table(["robustness", "questions", "clean, %", "perturbed, %", "degradation, points"], rows)
