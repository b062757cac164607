"""Where the text beside a benchmark's questions comes from, other than from the policy itself: one hint a question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from megatron_seirenes.config.schema import DistractorSettings
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.tasks import make_task_hints
from megatron_seirenes.records import Problem


def fixed_hints(settings: DistractorSettings, problems: Sequence[Problem], seed: int) -> dict[str, str]:
    """One hint a question, by question id, from a file, the questions' own column or a task.

    Raises DataError when a question has none.
    """
    if settings.kind == "task":
        hints = make_task_hints(settings.name or "", problems, seed)
        return {problem.id: hint for problem, hint in zip(problems, hints, strict=True)}
    if settings.kind == "column":
        found = {p.id: str(p.meta["distractor"]) for p in problems if p.meta.get("distractor")}
        return hints_of(problems, found, "distractors of kind column")
    if settings.path is None:
        raise DataError(f"evaluation.benchmarks: distractors of kind {settings.kind} need a path")
    return hints_of(problems, read_hint_file(Path(settings.path)), settings.path)


def hints_of(problems: Sequence[Problem], found: Mapping[str, str], place: str) -> dict[str, str]:
    """The hints of these questions, in their order. Raises DataError when one is missing."""
    missing = [problem.id for problem in problems if problem.id not in found]
    if missing:
        raise DataError(f"{place}: no hint for question {missing[0]} ({len(missing)} questions lack one)")
    return {problem.id: found[problem.id] for problem in problems}


def read_hint_file(path: Path) -> dict[str, str]:
    """Hints by question id, of a JSONL file of {"problem_id", "hint"}. Raises DataError naming the row."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    hints: dict[str, str] = {}
    for row, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            hints[str(record["problem_id"])] = str(record["hint"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: row {row}: expected an object with problem_id and hint") from None
    return hints
