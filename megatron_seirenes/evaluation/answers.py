"""Answers as they are kept: one JSON object an answer, a question's answers together.

The file of a benchmark is its ledger. A question is written in one piece, all its answers or none, as soon as the last
of them is judged; whoever goes on reads which questions are done and asks the others alone. Beside it stands what the
answers were made with (`.made-with.json`); answers made otherwise are refused, not mixed in. When the last question is
done the lines are put into the order of the questions.

A question whose own hint was refused or empty has no answers: one line with null `sample` says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from megatron_seirenes.errors import UsageError

Record = dict[str, Any]
Provenance = Mapping[str, Any]


class AnswerFile:
    """The answers of one benchmark. Without `made_with` nothing is gone on with: an older file is replaced."""

    def __init__(self, path: Path, samples: int, made_with: Provenance | None = None):
        self.path = path
        self.samples = samples
        self._answers: dict[str, list[Record]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if made_with is None:
            path.unlink(missing_ok=True)
        else:
            self._claim(dict(made_with))
            self._read()
        write_answers(path, self._answers)

    @property
    def done(self) -> frozenset[str]:
        """The ids of the questions that need no asking any more."""
        return frozenset(self._answers)

    def add(self, question: str, records: Sequence[Record]) -> None:
        """Keeps a finished question; on disk before this returns."""
        self._answers[question] = list(records)
        with self.path.open("ab") as file:
            file.write(_lines(records))
            file.flush()
            os.fsync(file.fileno())

    def finish(self, order: Iterable[str]) -> dict[str, list[Record]]:
        """The answers by question in `order`; the file is put into that order too."""
        ordered = {question: self._answers[question] for question in order}
        write_answers(self.path, ordered)
        return ordered

    def _claim(self, made_with: dict[str, Any]) -> None:
        path = self.path.with_suffix(".made-with.json")
        made_with = json.loads(json.dumps(made_with))
        if path.exists() and self.path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            changed = sorted(key for key in before | made_with if before.get(key) != made_with.get(key))
            if changed:
                raise UsageError(
                    f"{self.path}: its answers were made with another {', another '.join(changed)}; "
                    "name another run.name or run.dir, or remove the file"
                )
        _write_whole(path, json.dumps(made_with, indent=1).encode())

    def _read(self) -> None:
        """Keeps whole questions; what a kill cut off is asked again."""
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            try:
                record = json.loads(line)
                self._answers.setdefault(record["problem_id"], []).append(record)
            except (ValueError, KeyError, TypeError):
                continue
        whole = {None: 1}
        self._answers = {
            question: records
            for question, records in self._answers.items()
            if len(records) == whole.get(records[0]["sample"], self.samples)
        }


def write_answers(path: Path, answers: Mapping[str, Sequence[Record]]) -> None:
    """Writes a file of answers whole, in their order."""
    _write_whole(path, b"".join(_lines(records) for records in answers.values()))


def _lines(records: Iterable[Record]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode("utf-8", "replace")


def _write_whole(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
