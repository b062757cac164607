"""What the report knows of a run: its rows of metrics, its configuration, and where its rollout records lie.

Reads a run directory as it is, also while the run is going on; one that was only evaluated has no rows. What it
refuses: a folder with neither metrics nor an evaluation, and broken files (DataError naming the file).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.metrics import find, placeholders
from megatron_seirenes.observe.report.benchmarks import Evaluation, read_evaluation
from megatron_seirenes.observe.timeline_analysis import TimelineAnalysis, analyse_timeline
from megatron_seirenes.observe.writer import read_metrics


@dataclass(frozen=True, slots=True)
class Series:
    """Values by collection step; steps without a value are left out."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One run directory. `config` is flat: dotted keys to values. `timeline` and `evaluation` are None without one."""

    name: str
    folder: Path
    rows: tuple[Mapping[str, Any], ...]
    config: Mapping[str, Any]
    timeline: TimelineAnalysis | None = None
    evaluation: Evaluation | None = None

    def series(self, key: str) -> Series:
        """The finite values of one metric."""
        points = [(row["step"], row[key]) for row in self.rows if row.get(key) is not None]
        return Series(tuple(step for step, _ in points), tuple(value for _, value in points))

    def keys(self, pattern: str) -> list[str]:
        """The keys of this run that belong to a pattern of the metric table, in order of first appearance."""
        keys = dict.fromkeys(key for row in self.rows for key in row)
        return [key for key in keys if (metric := find(key)) is not None and metric.pattern == pattern]

    def running_total(self, key: str) -> Mapping[int, float]:
        """By step: what `key` sums to from the first row to this one."""
        totals = accumulate(row.get(key) or 0 for row in self.rows)
        return dict(zip((row["step"] for row in self.rows), totals, strict=True))

    def record_files(self) -> list[Path]:
        """Rollout record files in order of steps."""
        return sorted((self.folder / "rollouts").glob("step-*.jsonl.gz"))


def load_runs(folders: Sequence[Path]) -> list[Run]:
    """One `Run` a folder, under names that differ."""
    return [load_run(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def load_run(folder: Path, name: str) -> Run:
    """Reads one run directory. Raises DataError when there is nothing to report."""
    path = folder / "metrics.jsonl"
    evaluation = read_evaluation(folder)
    if not path.is_file() and evaluation is None:
        raise DataError(f"{folder}: no metrics.jsonl; a report needs the directory of a run (runs/NAME)")
    rows = tuple(read_metrics(path)) if path.is_file() else ()
    if not rows and evaluation is None:
        raise DataError(f"{path}: no step has finished yet; a report needs at least one row")
    timeline = folder / "timeline.json"
    analysis = analyse_timeline(timeline) if timeline.is_file() else None
    return Run(name, folder, rows, _read_config(folder / "config.yaml"), analysis, evaluation)


def label(key: str) -> str:
    """What tells a key apart from others of its pattern: `clean` for `entropy/clean`, `aime24` for a benchmark."""
    return " ".join(placeholders(key).values()) or key.rsplit("/", 1)[-1]


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys; lists and empty mappings are values."""
    if not isinstance(value, Mapping) or not value:
        return {prefix: value} if prefix else {}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, with as many parents as it takes to tell them apart, or a number."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{folder.name} ({number})" for number, folder in enumerate(folders, 1)]


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return flatten(yaml.safe_load(path.read_text()))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a configuration: {error}") from error
