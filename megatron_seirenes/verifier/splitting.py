r"""Cuts text where no bracket is open, and finds what stands inside brackets."""

from __future__ import annotations

import re

from megatron_seirenes.verifier import cost
from megatron_seirenes.verifier.cost import TooCostly

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", re.ASCII)
_OPENING = re.compile(r"\\\{|\\langle(?![a-zA-Z])|\\begin\s*\{|[(\[{]")
_BRACKET = re.compile(r"\\\{|\\\}|\\langle(?![a-zA-Z])|\\rangle(?![a-zA-Z])|[(\[{)\]}]")


def readings(text: str) -> tuple[str, ...]:
    """`1,234` is a number first, and two answers when the other side holds several."""
    collapsed = _collapse_thousands(text)
    return (text,) if collapsed == text else (collapsed, text)


def _collapse_thousands(text: str) -> str:
    return _THOUSANDS.sub(
        lambda match: match[0].replace(",", "") if _depth(text, match.start()) == 0 else match[0], text
    )


def _depth(text: str, place: int) -> int:
    depth = 0
    for match in _BRACKET.finditer(text, 0, place):
        depth += 1 if _OPENING.match(match[0]) else -1
    return depth


def split_outside(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """The parts of `text` between separators outside all brackets, and those separators."""
    depth = start = 0
    parts, found = [], []
    for match in re.finditer(rf"(?P<bracket>{_BRACKET.pattern}|\\(?:begin|end)(?![a-zA-Z]))|{separator.pattern}", text):
        token = match["bracket"]
        if token is None:
            if depth == 0:
                parts.append(text[start : match.start()].strip())
                found.append(match[0])
                start = match.end()
        elif token == "\\begin" or (token != "\\end" and _OPENING.match(token)):
            depth += 1
        else:
            depth -= 1
    parts.append(text[start:].strip())
    if len(parts) > cost.MOST_ELEMENTS:
        raise TooCostly(f"more than {cost.MOST_ELEMENTS} elements")
    return parts, found


def inside_brackets(text: str) -> tuple[str | None, str]:
    opening = _BRACKET.match(text)
    if opening is None or not _OPENING.match(opening[0]) or opening[0] == "{":
        return None, ""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if _OPENING.match(match[0]) else -1
        if depth == 0:
            if match.end() != len(text):
                return None, ""
            marks = {"\\{": "{", "\\}": "}", "\\langle": "<", "\\rangle": ">"}
            brackets = marks.get(opening[0], opening[0]) + marks.get(match[0], match[0])
            return text[opening.end() : match.start()], "()" if brackets == "<>" else brackets
    return None, ""
