"""The report's tables and samples as markup."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from megatron_seirenes.observe.console import duration
from megatron_seirenes.observe.metrics import find
from megatron_seirenes.observe.records import Record
from megatron_seirenes.observe.report.attack import THRESHOLDS, AttackStatistics, attack_statistics
from megatron_seirenes.observe.report.data import Run
from megatron_seirenes.observe.report.markup import Markup, element, join, table, text
from megatron_seirenes.observe.report.samples import Answer, BundleSample, HintSample, shorten

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
        "Evaluation: first and last value, with the 95 % interval of the last", ("metric", *_names(runs)), rows
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


def differences(runs: Sequence[Run]) -> Markup | None:
    """The configuration keys in which the runs differ. None for a single run."""
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


def sample(bundle: BundleSample) -> Markup:
    """One bundle: the question, then clean answer, hint and answer under the hint side by side."""
    title = element("h4", text(f"Step {bundle.step}, question {bundle.problem_id}"))
    question = element("div", element("h5", text("Question")), _prose(shorten(bundle.question)), class_="question")
    gold = element("p", text("Right answer: "), element("code", text(bundle.gold)))
    hints = [_hint(number, hint) for number, hint in enumerate(bundle.hints, 1)]
    clean = _answer("Clean answer", bundle.clean)
    return element("article", title, question, gold, element("div", clean, class_="columns"), *hints)


def _overview_row(run: Run) -> tuple[str, ...]:
    updates = sum(sum(run.series(key).values) for key in run.keys("streams/{s}/updates"))
    return (
        run.name,
        str(run.rows[-1]["step"]),
        *(_mean_of_last(run, key) for key in ("success/clean", "success/hinted", "attack/delta")),
        f"{updates:,.0f}",
        f"{sum(run.series('tokens/generated').values):,.0f}",
        duration(sum(run.series("time/step").values)),
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


def _names(runs: Sequence[Run]) -> list[str]:
    return [run.name for run in runs]


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)


def _hint(number: int, sample: HintSample) -> Markup:
    refused = sample.hint["refused"]
    state = f"refused: {refused}" if refused else f"advantage {_number(sample.hint['advantage'])}"
    hint = _card(f"Hint {number}", state, sample.hint)
    return element("div", hint, _answer(f"Answer under hint {number}", sample.answer), class_="columns")


def _answer(title: str, answer: Answer | None) -> Markup:
    if answer is None:
        return element("section", element("h5", text(title)), element("p", text("none")))
    record = answer.record
    verdict = {True: "correct", False: "wrong", None: "not judged"}[record["correct"]]
    extracted = "" if record["extracted"] is None else f", answered {shorten(record['extracted'], 80)}"
    state = (
        f"{verdict}{extracted}; {answer.correct} of {answer.judged} correct; advantage {_number(record['advantage'])}"
    )
    return _card(title, state, record, verdict.replace(" ", "-"))


def _card(title: str, state: str, record: Record, kind: str = "hint") -> Markup:
    cut = ", cut by the limit" if record["finish_reason"] == "length" else ""
    facts = element("p", text(f"{state}; {record['response_tokens']:,} tokens{cut}"), class_=f"facts {kind}")
    return element("section", element("h5", text(title)), facts, _prose(record["response"], title))


def _prose(content: str, title: str = "question") -> Markup:
    return element("pre", text(content), tabindex="0", role="region", aria_label=title)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def samples(bundles: Sequence[BundleSample]) -> Markup:
    """All chosen bundles of a run."""
    return join([sample(bundle) for bundle in bundles])
