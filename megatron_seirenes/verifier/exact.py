"""Decisions that need no algebra: certain, total, and cheap enough for the host's main thread.

Integers, decimals and fractions of ordinary length are compared as exact rational numbers. Whatever is not plainly of
that kind is left undecided (None); what is decided here is what the whole decision would say.
"""

from __future__ import annotations

import re
from fractions import Fraction

from megatron_seirenes.records import VerdictReason
from megatron_seirenes.verifier.cost import LONGEST_ANSWER
from megatron_seirenes.verifier.options import Options

LONGEST_NUMBER = 200

_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)\Z", re.ASCII)
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<a>\d+)/(?P<b>\d+)|\\[dt]?frac\{(?P<c>-?\d+)\}\{(?P<d>\d+)\})\Z", re.ASCII
)


def plain_number(text: str) -> Fraction | None:
    """The value of an integer, decimal or fraction of integers written in the plainest way, else None."""
    if len(text) > LONGEST_NUMBER:
        return None
    if _INTEGER.match(text):
        return Fraction(int(text))
    if _DECIMAL.match(text):
        return Fraction(text)
    match = _FRACTION.match(text)
    if match is None:
        return None
    above, below = int(match["a"] or match["c"]), int(match["b"] or match["d"])
    return Fraction(-above if match["sign"] == "-" else above, below) if below else None


def decide_at_once(gold: str, answer: str, options: Options) -> VerdictReason | None:
    """`match`, `mismatch` or `unparsable` when that is certain without algebra, else None.

    Unequal numbers are left open where a rounded decimal or a tolerance could still make them the same.
    """
    if gold == answer:
        return "match"
    if len(answer) > LONGEST_ANSWER or len(gold) > LONGEST_ANSWER:
        return "unparsable"
    gold = gold.strip()
    left, right = plain_number(gold), plain_number(answer)
    if left is None or right is None:
        return None
    if left == right:
        return "match"
    may_be_rounded = ("." in gold) != ("." in answer)
    return None if may_be_rounded or options.relative_tolerance else "mismatch"
