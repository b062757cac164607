"""Records for the supervised cold start: a prompt and the response to learn.

JSONL, one object a line, with `response` and either `messages` (a list of {"role", "content"}, as for a chat template)
or `prompt` (short for one user message). The end-of-sequence token is not part of a response; the trainer adds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """One demonstration."""

    messages: tuple[Mapping[str, str], ...]
    response: str


def read_records(path: str | Path) -> list[Record]:
    """The records of a file, in order. Raises DataError that names file and row."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            rows = [(number, line) for number, line in enumerate(file, start=1) if line.strip()]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file of warm-up records") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise DataError(f"{path}: holds no warm-up records")
    return [_record(line, f"{path}, row {number}") for number, line in rows]


def _record(line: str, where: str) -> Record:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: a JSON object expected, {type(row).__name__} seen")
    response = row.get("response")
    if not isinstance(response, str) or not response:
        raise DataError(f"{where}: `response` is {response!r}; a text that is not empty expected")
    return Record(_messages(row, where), response)


def _messages(row: Mapping[str, Any], where: str) -> tuple[Mapping[str, str], ...]:
    if ("messages" in row) == ("prompt" in row):
        raise DataError(f"{where}: either `messages` or `prompt` expected; keys seen: {', '.join(row)}")
    messages = row["messages"] if "messages" in row else [{"role": "user", "content": row["prompt"]}]
    good = isinstance(messages, list) and bool(messages) and all(map(_is_message, messages))
    if not good:
        raise DataError(f"{where}: {messages!r:.200} is no list of messages with texts `role` and `content`")
    return tuple(messages)


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
