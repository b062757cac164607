"""The whole decision on one (gold, answer) pair, cheapest means first. Runs inside a worker.

Exact numerals; then our own reading of both sides, whose word is final; then, for mathematics outside our grammar that
is cheap enough to be trusted to it, math-verify.
"""

from __future__ import annotations

import re

from megatron_seirenes.records import VerdictReason
from megatron_seirenes.verifier.algebra import check_vocabulary, compare
from megatron_seirenes.verifier.answers import Ordered, Scalar, Several, Words
from megatron_seirenes.verifier.comparison import same
from megatron_seirenes.verifier.cost import TooCostly, check_algebra
from megatron_seirenes.verifier.exact import decide_at_once
from megatron_seirenes.verifier.expression import Unreadable
from megatron_seirenes.verifier.normalisation import normalise
from megatron_seirenes.verifier.options import Options
from megatron_seirenes.verifier.reading import read_answer
from megatron_seirenes.verifier.splitting import readings
from megatron_seirenes.verifier.values import Undefined

_DRESSED_LETTER = re.compile(r"\\text\s*\{\s*([a-zA-Z])\s*\}")


def decide(gold: str, answer: str, options: Options) -> VerdictReason:
    """The verdict on `answer`, total for every pair of strings."""
    at_once = decide_at_once(gold, answer, options)
    if at_once is not None:
        return at_once
    left, right = normalise(gold), normalise(answer)
    if left == right and left:
        return "match"
    try:
        return "match" if _same_reading(left, right, options) else "mismatch"
    except Unreadable:
        return _by_algebra(left, right)
    except (TooCostly, Undefined, RecursionError):
        return "unparsable"


def _same_reading(left: str, right: str, options: Options) -> bool:
    """Whether both read the same.

    A bare letter behind a number (`18 m`) is a unit where the other side has one, or, in an answer, where the gold is
    a plain number; else it is a letter. What may be a number or several (`1,234`) is what the other side is.
    """
    gold, *gold_again = [read_answer(text) for text in readings(left)]
    has_unit = isinstance(gold, Scalar) and gold.unit is not None
    plain = not any(character.isalpha() for character in left)
    answer, *answer_again = [read_answer(text, has_unit or plain) for text in readings(right)]
    if isinstance(answer, Scalar) and answer.unit is not None and not has_unit and not plain:
        gold = read_answer(readings(left)[0], may_be_letter=True)
    if gold_again and isinstance(answer, Several | Ordered):
        gold = gold_again[0]
    elif answer_again and isinstance(gold, Several | Ordered):
        answer = answer_again[0]
    return same(gold, answer, options)


def _by_algebra(*sides: str) -> VerdictReason:
    left, right = (_DRESSED_LETTER.sub(r"\1", side) for side in sides)
    try:
        for text in (left, right):
            if _is_worded(text):
                return "mismatch"
            check_algebra(text)
            check_vocabulary(text)
        return compare(left, right)
    except (TooCostly, Unreadable, RecursionError):
        return "unparsable"


def _is_worded(text: str) -> bool:
    try:
        return isinstance(read_answer(text), Words)
    except ValueError:
        return False
