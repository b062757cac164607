"""Reads problems: files of questions in a named format or with declared columns, and procedural tasks.

A problem's id is the file's name without its suffix, a slash, and the row's own id or else its number; it is the same
in every run. Rows are numbered from 1, for JSONL by line, for CSV by record after the header. Refused with file and
row: a row that cannot be parsed, that lacks a column, or whose question or answer is empty (with `bad_rows: skip`
these are left out and reported in one warning); always refused: a missing file, an unknown format, equal ids, a file
without problems.
"""

from __future__ import annotations

import csv
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow
import pyarrow.parquet

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.formats import FORMATS, Format, columns_format
from megatron_seirenes.problems.tasks import make_task_problems
from megatron_seirenes.records import Problem

BadRows = Literal["error", "skip"]
NumberedRows = Iterator[tuple[int, Any]]

_log = logging.getLogger(__name__)
_FAULTS_SHOWN = 5


def read_problems(source: ProblemSource, bad_rows: BadRows = "error") -> list[Problem]:
    """The problems of one source, in file order (the first `count` good ones, when given). Raises DataError."""
    if (source.path is None) == (source.task is None):
        raise DataError(f"a problem source needs `path` or `task`; path is {source.path!r}, task {source.task!r}")
    if source.task is not None:
        if source.count is None:
            raise DataError(f"task {source.task}: `count` is missing; a procedural task has no end")
        return make_task_problems(source.task, source.options, source.split, source.count, source.seed)
    return _read_file(source, Path(str(source.path)), bad_rows)


def read_all(sources: Sequence[ProblemSource], bad_rows: BadRows = "error") -> list[Problem]:
    """The problems of several sources, one after the other. Raises DataError when two share an id."""
    problems: dict[str, Problem] = {}
    for source in sources:
        for problem in read_problems(source, bad_rows):
            if problem.id in problems:
                raise DataError(
                    f"{source.path or source.task}: problem id {problem.id} was already read from another source; "
                    "rename the file or remove the source that is listed twice"
                )
            problems[problem.id] = problem
    return list(problems.values())


def _read_file(source: ProblemSource, path: Path, bad_rows: BadRows) -> list[Problem]:
    form = _format_of(source, path)
    problems: dict[str, Problem] = {}
    first_row: dict[str, int] = {}
    faults: list[str] = []
    for number, row in _rows(path):
        if source.count is not None and len(problems) == source.count:
            break
        problem = _problem(form, path, number, row)
        if isinstance(problem, str):
            faults.append(problem)
            continue
        if problem.id not in problems:
            problems[problem.id], first_row[problem.id] = problem, number
        elif not (form.repeats and _same(problem, problems[problem.id])):
            raise DataError(f"{path}, row {number}: id {problem.id} was already used in row {first_row[problem.id]}")
    if faults:
        _report(path, faults, bad_rows)
    if not problems:
        raise DataError(f"{path}: holds no {'usable ' if faults else ''}problems")
    if source.count is not None and len(problems) < source.count:
        raise DataError(f"{path}: count is {source.count}, but the file holds only {len(problems)} problems")
    return list(problems.values())


def _format_of(source: ProblemSource, path: Path) -> Format:
    if source.split == "held_out":
        raise DataError(f"{path}: `split: held_out` is for procedural tasks; a file is read whole")
    if source.format is not None and source.columns:
        raise DataError(f"{path}: give either `format` or `columns`, not both")
    if source.format is None:
        unknown = sorted(set(source.columns) - {"id", "question", "answer"})
        if unknown:
            raise DataError(f"{path}: unknown columns {', '.join(unknown)}; allowed: id, question, answer")
        return columns_format(source.columns) if source.columns else FORMATS["plain"]
    if source.format not in FORMATS:
        raise DataError(f"{path}: unknown format {source.format!r}; known: {', '.join(FORMATS)} (or give `columns`)")
    return FORMATS[source.format]


def _problem(form: Format, path: Path, number: int, row: Any) -> Problem | str:
    """The problem of one row, or what is wrong with it."""
    where = f"{path}, row {number}"
    if isinstance(row, ValueError):
        return f"{where}: {row}"
    try:
        question, answer = _text(form.question(row)), _text(form.answer(row))
        own_id = form.id(row)
    except KeyError as missing:
        return f"{where}: no column {missing.args[0]} (columns: {', '.join(map(str, row))})"
    except (ValueError, TypeError, AttributeError) as error:
        return f"{where}: not in format {form.name}: {error}"
    empty = [name for name, text in (("question", question), ("answer", answer)) if not text]
    if empty:
        return f"{where}: empty {' and '.join(empty)}"
    meta = {name: row[name] for name in form.meta if row.get(name) is not None}
    return Problem(f"{path.stem}/{number if own_id is None else own_id}", question, answer, path.stem, meta)


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


def _report(path: Path, faults: Sequence[str], bad_rows: BadRows) -> None:
    shown = "\n  ".join(faults[:_FAULTS_SHOWN])
    more = f"\n  … and {len(faults) - _FAULTS_SHOWN} more" if len(faults) > _FAULTS_SHOWN else ""
    if bad_rows == "error":
        hint = "mend the file, or set problems.bad_rows=skip to leave such rows out"
        raise DataError(f"{path}: {len(faults)} bad row{'s' if len(faults) > 1 else ''}; {hint}\n  {shown}{more}")
    _log.warning("%s: %d bad rows skipped\n  %s%s", path, len(faults), shown, more)


# -- containers: each yields (row number, row), or (row number, ValueError) for a row that cannot be parsed


def _rows(path: Path) -> NumberedRows:
    read = _CONTAINERS.get(path.suffix.lower())
    if read is None:
        raise DataError(f"{path}: unknown file type {path.suffix!r}; known: {', '.join(_CONTAINERS)}")
    try:
        yield from read(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _jsonl_rows(path: Path) -> NumberedRows:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, _json_object(line)


def _json_object(line: str) -> Mapping[str, Any] | ValueError:
    try:
        row = json.loads(line)
    except ValueError as error:
        return ValueError(f"not JSON: {error}")
    return row if isinstance(row, dict) else ValueError(f"a JSON object expected, {type(row).__name__} seen")


def _csv_rows(path: Path) -> NumberedRows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from enumerate(csv.DictReader(file), start=1)


def _parquet_rows(path: Path) -> NumberedRows:
    number = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row


_CONTAINERS: dict[str, Callable[[Path], NumberedRows]] = {
    ".jsonl": _jsonl_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}
