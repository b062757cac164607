"""metrics.jsonl: one line a collection step, readable after a kill at any moment.

Invariants: steps rise strictly, so no step stands twice; every line that ends in a newline is whole, valid JSON. A line
is flushed to the disk before `append` returns. Values that are NaN or infinite are not JSON: they are written as null
and counted in `metrics/nonfinite`, and `append` returns their keys.

A disk that refuses a row (full, read-only, gone) raises OSError; the file is cut back to its last whole line, and the
row is kept and written before the next one, so that no step is missing once the disk takes them again.

Recovery: a last line that a kill cut short is dropped when the file is opened; a run that goes on from the snapshot of
step n calls `truncate_after(n)`, so that the steps it runs again are not written twice. What it refuses: a broken line
that is not the last one (DataError naming file and line), a step that does not rise, a row that `validate_row` refuses.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.metrics import Row, Value, validate_row


class MetricsWriter:
    """Appends rows to `path`, creating it and its folder when absent. `last_step` is None while there is no row."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._file: IO[bytes] = path.open("r+b", buffering=0)
        self._refused: list[bytes] = []
        rows, self._end = _scan(path, path.read_bytes())
        self._cut(self._end)
        self.last_step: int | None = rows[-1][0]["step"] if rows else None

    def append(self, row: Row) -> tuple[str, ...]:
        """Writes one row and returns the keys whose values were not finite.

        Raises ValueError on a wrong row, OSError when the disk refuses it.
        """
        validate_row(row)
        step = row["step"]
        assert isinstance(step, int)
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(f"{self.path}: step {step} after step {self.last_step}; steps must rise")
        finite, dropped = _finite(row)
        line = json.dumps(finite, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._refused.append(line.encode() + b"\n")
        self.last_step = step
        self.write_refused()
        return dropped

    def write_refused(self) -> None:
        """Writes the rows that the disk refused before, if any. Raises OSError when it still does."""
        while self._refused:
            self._write(self._refused[0])
            del self._refused[0]

    def truncate_after(self, step: int) -> int:
        """Drops the rows of later steps, as a run does that goes on from `step`; returns their number."""
        rows, _ = _scan(self.path, self.path.read_bytes())
        kept = [(row, stop) for row, stop in rows if row["step"] <= step]
        self._cut(kept[-1][1] if kept else 0)
        self.last_step = kept[-1][0]["step"] if kept else None
        return len(rows) - len(kept)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        """Adds one line whole, or nothing of it."""
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the file was removed while it was open", str(self.path))
        try:
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._cut(self._end)
            raise
        self._end += len(line)

    def _cut(self, end: int) -> None:
        self._file.seek(end)
        self._file.truncate()
        os.fsync(self._file.fileno())
        self._end = end


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every whole row of a metrics.jsonl; a torn last line is left out. Raises DataError on another broken line."""
    rows, _ = _scan(path, path.read_bytes())
    return [row for row, _ in rows]


def _scan(path: Path, content: bytes) -> tuple[list[tuple[dict[str, Any], int]], int]:
    """Each whole row with the offset of its end, and the offset after the last of them."""
    lines = content.split(b"\n")
    written = max((number for number, line in enumerate(lines, 1) if line), default=0)
    rows: list[tuple[dict[str, Any], int]] = []
    end = 0
    for number, line in enumerate(lines, 1):
        end += len(line) + 1
        row = _parse(line)
        if row is not None and end <= len(content):
            rows.append((row, end))
        elif line and number < written:
            raise DataError(f"{path}: line {number} is not a row of metrics: {line[:80]!r}; mend or remove it")
    return rows, rows[-1][1] if rows else 0


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def _finite(row: Row) -> tuple[dict[str, Value], tuple[str, ...]]:
    dropped = tuple(key for key, value in row.items() if value is not None and not math.isfinite(value))
    if not dropped:
        return dict(row), ()
    return {**row, **dict.fromkeys(dropped, None), "metrics/nonfinite": len(dropped)}, dropped
