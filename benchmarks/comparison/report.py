"""Makes docs/comparison.md of the results: one table a world, as measured.

    python benchmarks/comparison/report.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, linear_regression, stdev
from typing import Any

from methods import METHODS, QUESTIONS, RUMOURS, WORLDS

HERE = Path(__file__).parent
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}
"""Student's t, two-sided 95 %, by degrees of freedom."""

COLUMNS = {
    "clean": "clean",
    "natural": "with its rumours",
    "wrong_claims": "under fixed wrong claims",
    "own_hints": "under its own hints",
}

Result = dict[str, Any]


def read_results(folder: Path) -> list[Result]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def write_report(results: Path, page: Path) -> None:
    """Writes the page. Raises ValueError when there is no result."""
    found = read_results(results)
    if not found:
        raise ValueError(f"{results}: no results")
    budgets = sorted({result["budget"] for result in found})
    parts = [HEAD.format(budget=" or ".join(f"{budget:,}" for budget in budgets), questions=QUESTIONS, **RUMOURS)]
    for world in WORLDS:
        chosen = [result for result in found if result["world"] == world]
        if chosen:
            parts += [f"## {world}\n", _success(chosen), _by_warmup(chosen), _attack(chosen), _cost(chosen)]
    page.write_text("\n".join(parts), encoding="utf-8")


def _success(results: Sequence[Result]) -> str:
    names = [name for name in COLUMNS if any(name in result["evaluation"] for result in results)]
    rows = []
    for method, runs in _by_method(results):
        cells = [_interval([100 * run["evaluation"][name]["mean"] for run in runs]) for name in names]
        rows.append([METHODS[method].title, str(len(runs)), *cells])
    return "Held-out success, %:\n\n" + _table(["method", "runs", *(COLUMNS[name] for name in names)], rows)


def _by_warmup(results: Sequence[Result]) -> str:
    """Every run by itself: whether a difference holds for both warm-ups is seen here, not in the means."""
    warmups = sorted({result["warmup"] for result in results})
    rows = []
    for method, runs in _by_method(results):
        cells = []
        for warmup in warmups:
            mine = [run for run in runs if run["warmup"] == warmup]
            cells.append(" · ".join(_pair(run) for run in sorted(mine, key=lambda run: run["seed"])) or "–")
        rows.append([METHODS[method].title, *cells])
    header = ["method", *(f"warm-up {warmup}" for warmup in warmups)]
    return "Each run by its seed, clean / under fixed wrong claims:\n\n" + _table(header, rows)


def _pair(run: Result) -> str:
    evaluation = run["evaluation"]
    return f"{100 * evaluation['clean']['mean']:.1f} / {100 * evaluation['wrong_claims']['mean']:.1f}"


def _attack(results: Sequence[Result]) -> str:
    rows = []
    for method, runs in _by_method(results):
        attacked = [run for run in runs if len(run["attack"]) > 2]
        if not attacked:
            continue
        slopes = [_slope(run["attack"]) for run in attacked]
        early, late = ([_quarter(run, last) for run in attacked] for last in (False, True))
        rows.append([METHODS[method].title, _interval(slopes), _interval(early), _interval(late)])
    if not rows:
        return ""
    header = ["method", "slope, points a 100k tokens", "first quarter, points", "last quarter, points"]
    return "Attack (`attack/delta`, clean − hinted success on training questions):\n\n" + _table(header, rows)


def _slope(attack: Sequence[Sequence[float]]) -> float:
    """Least squares, in percentage points a 100,000 generated tokens."""
    tokens, deltas = zip(*attack, strict=True)
    return 100 * 100_000 * linear_regression(tokens, deltas).slope


def _quarter(run: Result, last: bool) -> float:
    """Mean attack of the steps in the first or last quarter of the run's tokens, in percentage points."""
    end = run["attack"][-1][0]
    inside = [delta for tokens, delta in run["attack"] if (tokens > 0.75 * end if last else tokens <= 0.25 * end)]
    return 100 * fmean(inside or [run["attack"][0][1]])


def _cost(results: Sequence[Result]) -> str:
    rows = []
    for method, runs in _by_method(results):
        means = [fmean(run[key] for run in runs) for key in ("generated_tokens", "trained_tokens", "updates", "steps")]
        rows.append([METHODS[method].title, *(f"{mean:,.0f}" for mean in means)])
    header = ["method", "tokens generated", "tokens trained", "updates", "steps"]
    return "What a run used, mean:\n\n" + _table(header, rows)


def _by_method(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    found = [(method, [result for result in results if result["method"] == method]) for method in METHODS]
    return [(method, runs) for method, runs in found if runs]


def _interval(values: Sequence[float]) -> str:
    """Mean and half of the 95 % interval over runs; the mean alone of a single run."""
    if len(values) < 2:
        return f"{fmean(values):.1f}"
    return f"{fmean(values):.1f} ± {T95.get(len(values) - 1, 1.96) * stdev(values) / sqrt(len(values)):.1f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


HEAD = """# Comparison at equal budget

Six methods on the [small world](small_world.md), from the same warmed-up policies, for {budget} generated tokens
a run (a step that crosses the budget is finished): three seeds over each of two warm-ups, those of the quickstart with
`--seed 0` and `--seed 1` (the same records, shape and rates). The model, its rate, the
{questions:,} training questions and the held-out ones are the same everywhere; what differs is in
`benchmarks/comparison/methods.py`. Discarded tokens count. This page is printed from the results, whatever they say;
runs that are not there yet are missing from it.

In the world of **rumours** a share of {notes:g} of the questions carries a claim about its answer that is true with
probability {note_truth:g}, in training and in the column "with its rumours"; the other columns ask without rumours.
Wrong claims are one fixed set for all policies; own hints come from each policy's own Adversary, so they differ.

```
python benchmarks/comparison/run.py            # all runs, resumable; results in benchmarks/comparison/results/
python benchmarks/comparison/report.py         # this page
```

± is half of a 95 % interval of the mean over runs (Student's t): how much runs vary, with few runs very roughly. A
benchmark of 384 questions with 2 answers each has by itself a standard error of at most 2 points.
"""


if __name__ == "__main__":
    write_report(HERE / "results", HERE.parents[1] / "docs" / "comparison.md")
