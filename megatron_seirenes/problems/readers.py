"""Reads problems: files and folders of questions in a named format or with declared columns, hub data sets, tasks.

A problem's id is the file's (or folder's, or data set's) name without its suffix, a slash, and the row's own id or else
its number; it is the same in every run. Rows are numbered from 1, for JSONL by line, else by record; the shards of a
folder are numbered through. Refused with file and row: a row that cannot be parsed, that lacks a column, or whose
question or answer is empty (with `bad_rows: skip` these are left out and reported in one warning); always refused: a
missing file, an unknown format, equal ids, a source without problems.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.containers import data_files, read_rows
from megatron_seirenes.problems.formats import DECLARED, FORMATS, Format, columns_format
from megatron_seirenes.problems.hub import hub_folder
from megatron_seirenes.problems.tasks import make_task_problems
from megatron_seirenes.records import Problem

BadRows = Literal["error", "skip"]

_log = logging.getLogger(__name__)
_FAULTS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Row:
    """A raw row, where it stands, and its number among all rows of its source."""

    where: str
    number: int
    content: Any


def read_problems(source: ProblemSource, bad_rows: BadRows = "error") -> list[Problem]:
    """The problems of one source, in file order (the first `count` good ones, when given). Raises DataError."""
    given = {"path": source.path, "hub": source.hub, "task": source.task}
    if sum(value is not None for value in given.values()) != 1:
        seen = ", ".join(f"{key} {value!r}" for key, value in given.items())
        raise DataError(f"a problem source needs `path`, `hub` or `task`; seen: {seen}")
    if source.task is not None:
        if source.count is None:
            raise DataError(f"task {source.task}: `count` is missing; a procedural task has no end")
        return make_task_problems(source.task, source.options, source.split, source.count, source.seed)
    name = source.path or source.hub or ""
    form = _format_of(source, name)
    if source.hub is not None:
        folder = hub_folder(source.hub, source.revision, source.files)
        return _read_files(source, source.hub.rpartition("/")[2], data_files(folder, source.files), form, bad_rows)
    path = Path(name)
    if path.is_dir():
        return _read_files(source, path.name, data_files(path, source.files), form, bad_rows)
    if source.files is not None:
        raise DataError(f"{path}: `files` chooses files of a folder, and this is none")
    return _read_files(source, path.stem, [path], form, bad_rows)


def read_all(sources: Sequence[ProblemSource], bad_rows: BadRows = "error") -> list[Problem]:
    """The problems of several sources, one after the other. Raises DataError when two share an id."""
    problems: dict[str, Problem] = {}
    for source in sources:
        for problem in read_problems(source, bad_rows):
            if problem.id in problems:
                name = source.path or source.hub or source.task
                raise DataError(
                    f"{name}: problem id {problem.id} was already read from another source; "
                    "rename the file or remove the source that is listed twice"
                )
            problems[problem.id] = problem
    return list(problems.values())


def _read_files(
    source: ProblemSource, name: str, paths: Sequence[Path], form: Format, bad_rows: BadRows
) -> list[Problem]:
    problems: dict[str, Problem] = {}
    first_seen: dict[str, str] = {}
    faults: list[str] = []
    left_out: list[str] = []
    for row in _rows(paths):
        if source.count is not None and len(problems) == source.count:
            break
        reason = form.leaves_out(row.content) if isinstance(row.content, dict) else None
        if reason is not None:
            left_out.append(f"{row.where}: {reason}")
            continue
        problem = _problem(form, name, row)
        if isinstance(problem, str):
            faults.append(problem)
        elif problem.id not in problems:
            problems[problem.id], first_seen[problem.id] = problem, row.where
        elif not (form.repeats and _same(problem, problems[problem.id])):
            raise DataError(f"{row.where}: id {problem.id} was already used in {first_seen[problem.id]}")
    place = str(paths[0]) if len(paths) == 1 else f"{name} ({len(paths)} files)"
    if left_out:
        _log.info("%s: %d rows are no questions and were left out\n  %s", place, len(left_out), _some(left_out))
    if faults:
        _report(place, faults, bad_rows)
    if not problems:
        raise DataError(f"{place}: holds no {'usable ' if faults or left_out else ''}problems")
    if source.count is not None and len(problems) < source.count:
        raise DataError(f"{place}: count is {source.count}, but it holds only {len(problems)} problems")
    return list(problems.values())


def _rows(paths: Sequence[Path]) -> Iterator[_Row]:
    before = 0
    for path in paths:
        number = 0
        for number, content in read_rows(path):
            yield _Row(f"{path}, row {number}", before + number, content)
        before += number


def _format_of(source: ProblemSource, name: str) -> Format:
    if source.split == "held_out":
        raise DataError(f"{name}: `split: held_out` is for procedural tasks; a file is read whole")
    if source.format is not None and source.columns:
        raise DataError(f"{name}: give either `format` or `columns`, not both")
    if source.format is None:
        unknown = sorted(set(source.columns) - set(DECLARED))
        if unknown:
            raise DataError(f"{name}: unknown columns {', '.join(unknown)}; allowed: {', '.join(DECLARED)}")
        return columns_format(source.columns) if source.columns else FORMATS["plain"]
    if source.format not in FORMATS:
        raise DataError(f"{name}: unknown format {source.format!r}; known: {', '.join(FORMATS)} (or give `columns`)")
    return FORMATS[source.format]


def _problem(form: Format, name: str, row: _Row) -> Problem | str:
    """The problem of one row, or what is wrong with it."""
    content = row.content
    if isinstance(content, ValueError):
        return f"{row.where}: {content}"
    try:
        question, answer = _text(form.question(content)), _text(form.answer(content))
        own_id, distractor = form.id(content), form.distractor(content)
    except KeyError as missing:
        return f"{row.where}: no column {missing.args[0]} (columns: {', '.join(map(str, content))})"
    except (ValueError, TypeError, AttributeError) as error:
        return f"{row.where}: not in format {form.name}: {error}"
    empty = [part for part, text in (("question", question), ("answer", answer)) if not text]
    if empty:
        return f"{row.where}: empty {' and '.join(empty)}"
    meta = {key: content[key] for key in form.meta if content.get(key) is not None}
    solution = content.get("solution", content.get("Solution"))
    if isinstance(solution, str) and solution.strip():
        meta["solution"] = solution.strip()
    if distractor is not None:
        meta["distractor"] = str(distractor).strip()
    return Problem(f"{name}/{row.number if own_id is None else own_id}", question, answer, name, meta)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"text or a number expected, {type(value).__name__} seen")
    if not math.isfinite(value):
        return ""
    return str(value)


def _same(one: Problem, other: Problem) -> bool:
    return (one.question, one.answer) == (other.question, other.answer)


def _some(lines: Sequence[str]) -> str:
    more = f"\n  … and {len(lines) - _FAULTS_SHOWN} more" if len(lines) > _FAULTS_SHOWN else ""
    return "\n  ".join(lines[:_FAULTS_SHOWN]) + more


def _report(place: str, faults: Sequence[str], bad_rows: BadRows) -> None:
    if bad_rows == "error":
        hint = "mend the file, or set problems.bad_rows=skip to leave such rows out"
        raise DataError(f"{place}: {len(faults)} bad row{'s' if len(faults) > 1 else ''}; {hint}\n  {_some(faults)}")
    _log.warning("%s: %d bad rows skipped\n  %s", place, len(faults), _some(faults))
