"""What a model wrote, as text that no terminal and no page reads as anything else."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """The text with control characters (escape sequences begin with one) and lone surrogates as U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text that is longer than `limit` characters: the answer stands at the end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
