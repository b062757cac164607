"""The report's tables as markup."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from megatron_seirenes.observe.console import duration
from megatron_seirenes.observe.metrics import find
from megatron_seirenes.observe.report.attack import THRESHOLDS, AttackStatistics, attack_statistics
from megatron_seirenes.observe.report.data import Run
from megatron_seirenes.observe.report.markup import Markup, element, table, text
from megatron_seirenes.observe.timeline_analysis import TimelineAnalysis

LAST = 10
"""Steps over which the overview takes the mean."""


def overview(runs: Sequence[Run]) -> Markup:
    """One line a run: how far it went, where it stands, what it cost."""
    headings = ("run", "steps", "clean", "hinted", "clean − hinted", "updates", "generated tokens", "time", "retired")
    caption = f"Runs at a glance; success is the mean of the last {LAST} steps"
    return table(caption, headings, [_overview_row(run) for run in runs])


def evaluation_table(runs: Sequence[Run]) -> Markup | None:
    """Every evaluation metric: its first and last value in each run. None when no run was evaluated."""
    keys = dict.fromkeys(
        key
        for run in runs
        for row in run.rows
        for key in row
        if key.startswith("evaluation/") and not key.endswith(("/low", "/high"))
    )
    if not keys:
        return None
    rows = [(key.removeprefix("evaluation/"), *(_first_and_last(run, key) for run in runs)) for key in keys]
    return table(
        "During training: first and last value, with the 95 % interval of the last", ("metric", *_names(runs)), rows
    )


def attack_table(runs: Sequence[Run]) -> Markup | None:
    """Attack-strength statistics as in the paper's Table 4. None when no run had hints."""
    statistics = {run.name: attack_statistics(run.series("attack/delta").values) for run in runs}
    rows = [(name, *_attack_cells(found)) for name, found in statistics.items() if found is not None]
    if not rows:
        return None
    above = [f"> {threshold:.0%}" for threshold in THRESHOLDS]
    headings = ("run", "steps", *above, "early half", "late half", "slope, % a step", "longest streak", "strong steps")
    return table("Attack strength: share of steps with clean − hinted above a threshold", headings, rows)


def timeline_table(runs: Sequence[Run]) -> Markup | None:
    """What the timelines say: idle shares, what each stage adds to a collection, judging alone. None without one."""
    known = [(run.name, run.timeline) for run in runs if run.timeline is not None]
    if not known:
        return None
    stages = list(dict.fromkeys(stage for _, found in known for stage in found.stages))
    added = (f"{stage} adds" for stage in stages)
    headings = ("run", "steps", "s a step", "engine idle", "trainer idle", *added, "judging alone")
    caption = "From the timeline: idle shares; seconds and share of a step that each stage adds after those before it"
    return table(caption, headings, [_timeline_row(name, found, stages) for name, found in known])


def differences(runs: Sequence[Run]) -> Markup | None:
    """The configuration keys in which the runs differ, of those that kept one. None for a single run."""
    runs = [run for run in runs if run.config]
    if len(runs) < 2:
        return None
    keys = sorted({key for run in runs for key in run.config})
    differing = [key for key in keys if len({_shown(run.config.get(key)) for run in runs}) > 1]
    if not differing:
        return element("p", text("The configurations are the same."))
    rows = [(key, *(_shown(run.config.get(key)) for run in runs)) for key in differing]
    return table("Where the configurations differ", ("key", *_names(runs)), rows)


def configuration(run: Run) -> Markup:
    """The whole configuration of a run, folded."""
    rows = [(key, _shown(value)) for key, value in sorted(run.config.items())]
    summary = element("summary", text(f"{run.name}: all {len(rows)} keys"))
    return element("details", summary, table(f"Configuration of {run.name}", ("key", "value"), rows))


def _overview_row(run: Run) -> tuple[str, ...]:
    updates = sum(sum(run.series(key).values) for key in run.keys("streams/{s}/updates"))
    return (
        run.name,
        str(run.rows[-1]["step"]) if run.rows else "–",
        *(_mean_of_last(run, key) for key in ("success/clean", "success/hinted", "attack/delta")),
        f"{updates:,.0f}",
        f"{sum(run.series('tokens/generated').values):,.0f}",
        duration(sum(run.series("time/step").values) if run.rows else None),
        _last(run, "mastery/retired"),
    )


def _mean_of_last(run: Run, key: str) -> str:
    values = run.series(key).values[-LAST:]
    return f"{fmean(values):.3f}" if values else "–"


def _last(run: Run, key: str) -> str:
    values = run.series(key).values
    return f"{values[-1]:,.0f}" if values else "–"


def _first_and_last(run: Run, key: str) -> str:
    values = run.series(key).values
    if not values:
        return "–"
    digits = ".3f" if (metric := find(key)) is not None and metric.unit == "fraction" else ",.4g"
    shown = f"{values[0]:{digits}} → {values[-1]:{digits}}" if len(values) > 1 else f"{values[0]:{digits}}"
    low, high = run.series(f"{key}/low").values, run.series(f"{key}/high").values
    return f"{shown} [{low[-1]:{digits}}, {high[-1]:{digits}}]" if low and high else shown


def _attack_cells(found: AttackStatistics) -> tuple[str, ...]:
    slope = "–" if found.slope is None else f"{100 * found.slope:+.3f}"
    halves = ("–" if share is None else f"{share:.1%}" for share in (found.early, found.late))
    tail = (f"{share:.1%}" for share in found.tail)
    return (str(found.steps), *tail, *halves, slope, str(found.longest_streak), str(found.strong_steps))


def _timeline_row(name: str, found: TimelineAnalysis, stages: Sequence[str]) -> tuple[str, ...]:
    total, steps = found.total, len(found.steps)

    def part(seconds: float) -> str:
        return f"{seconds / steps:.2f} s ({seconds / total.seconds:.1%})"

    return (
        name,
        str(steps),
        f"{total.seconds / steps:.2f}",
        f"{total.engine_idle:.1%}",
        f"{total.trainer_idle:.1%}",
        *(part(total.added[stage]) if stage in total.added else "–" for stage in stages),
        part(total.judging_alone),
    )


def _names(runs: Sequence[Run]) -> list[str]:
    return [run.name for run in runs]


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)
