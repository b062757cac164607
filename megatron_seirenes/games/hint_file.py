"""A file of hints: one JSON object a line, `{"problem_id": …, "hint": …}` or `{"problem_id": …, "hints": […]}`.

Several lines about a problem add up, in the order of the file. An empty list says that a problem has no hint, which is
something else than not being named. Anything else is refused, naming the line.
"""

from __future__ import annotations

import json
from pathlib import Path

from megatron_seirenes.errors import DataError

Hints = dict[str, tuple[str, ...]]


def read_hints(path: Path) -> Hints:
    """The hints of a file by problem id. Raises DataError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"game.hint_file: {path} cannot be read: {error}") from None
    hints: Hints = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            problem_id, found = _parse(line, f"{path}, line {number}")
            hints[problem_id] = hints.get(problem_id, ()) + found
    if not any(hints.values()):
        raise DataError(f"game.hint_file: {path} holds no hints")
    return hints


def _parse(line: str, where: str) -> tuple[str, tuple[str, ...]]:
    try:
        record = json.loads(line)
        found = record["hints"] if "hints" in record else [record["hint"]]
        problem_id = record["problem_id"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{where}: expected an object with problem_id and hint (or hints)") from None
    if not isinstance(found, list) or not all(isinstance(hint, str) and hint.strip() for hint in found):
        raise DataError(f"{where}: hints must be texts that are not empty")
    return str(problem_id), tuple(found)
