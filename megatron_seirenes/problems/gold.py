"""Gold answers as published, made plain: small pure functions that the table of formats is built from."""

from __future__ import annotations

import re
from collections.abc import Sequence

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_WHOLE = re.compile(r"[+-]?\d+")


def after_marker(text: str, marker: str = "####") -> str:
    """What follows the last marker, without thousands separators. Raises ValueError when the marker is missing."""
    _, found, answer = text.rpartition(marker)
    if not found:
        raise ValueError(f"no {marker} in the answer")
    return _THOUSANDS.sub("", answer.strip())


def last_boxed(text: str) -> str:
    r"""The content of the last `\boxed{…}`, braces balanced. Raises ValueError without one that closes."""
    start = text.rfind("\\boxed{")
    if start < 0:
        raise ValueError("no \\boxed{} in the solution")
    begin = start + len("\\boxed{")
    depth, position = 1, begin
    while position < len(text) and depth:
        if text[position] == "\\":
            position += 1
        elif text[position] in "{}":
            depth += 1 if text[position] == "{" else -1
        position += 1
    if depth:
        raise ValueError("the last \\boxed{ never closes")
    return text[begin : position - 1].strip()


def number(value: object) -> str:
    """A number as it is written: `145.0` is `145`, `025` is `25`, `0.5` stays. Other text is returned as it is."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip()
    return str(int(text)) if _WHOLE.fullmatch(text) else text


def without_dollars(text: str) -> str:
    """Math without the one pair of dollar signs around it."""
    text = text.strip()
    inner = text.strip("$").strip()
    return inner if text.startswith("$") and text.endswith("$") and "$" not in inner else text


def answer_list(answers: Sequence[str], several: bool) -> str:
    """A list of answers as one gold: `several` are all asked for, of alternatives the first stands for them.

    Raises ValueError for an empty list or one that holds anything but text.
    """
    if isinstance(answers, str) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"a list of answers expected, {answers!r} seen")
    return ", ".join(without_dollars(answer) for answer in (answers if several else answers[:1]))


def choice_key(value: object) -> str:
    """The letter of the right choice, given as an index from 0 or as the letter itself. Raises ValueError."""
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, str) and len(value.strip()) == 1 and value.strip().isalpha():
        return value.strip().upper()
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"the index or letter of a choice expected, {value!r} seen")
    return letter(value)


def letter(index: int) -> str:
    """The letter of a choice: 0 is A."""
    if not 0 <= index < 26:
        raise ValueError(f"choice {index} is outside A to Z")
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[index]


def lettered(choices: Sequence[str], labels: Sequence[str] | None = None) -> str:
    """Choices as lines `A. …`, under their own labels where they have some. Raises ValueError for no list of texts."""
    if isinstance(choices, str) or len(choices) < 2:
        raise ValueError(f"a list of at least two choices expected, {choices!r} seen")
    labels = [letter(index) for index in range(len(choices))] if labels is None else labels
    return "\n".join(f"{label}. {choice}" for label, choice in zip(labels, choices, strict=True))


def without_wrapping(text: str, wrappings: tuple[tuple[str, str], ...]) -> str:
    """A question without the instruction that a data set wrapped it in: the first (before, after) pair that fits."""
    for before, after in wrappings:
        if text.startswith(before) and text.endswith(after) and len(text) >= len(before) + len(after):
            return text[len(before) : len(text) - len(after)].strip()
    return text.strip()
