"""Decisions that need no algebra: certain, total, and cheap enough for the host's main thread.

Integers, decimals and fractions of ordinary length are compared as exact rational numbers. Whatever is not plainly of
that kind is left undecided (None).
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


def plain_number(text: str) -> Fraction | None:
    """The value of an integer or decimal numeral, else None."""
    if len(text) > LONGEST_NUMBER:
        return None
    if _INTEGER.match(text):
        return Fraction(int(text))
    if _DECIMAL.match(text):
        return Fraction(text)
    return None


def decide_at_once(gold: str, answer: str, options: Options) -> VerdictReason | None:
    """`match`, `mismatch` or `unparsable` when that is certain without algebra, else None."""
    if gold == answer:
        return "match"
    if len(answer) > LONGEST_ANSWER or len(gold) > LONGEST_ANSWER:
        return "unparsable"
    left, right = plain_number(gold.strip()), plain_number(answer)
    if left is None or right is None:
        return None
    if left == right:
        return "match"
    return None if options.relative_tolerance else "mismatch"
