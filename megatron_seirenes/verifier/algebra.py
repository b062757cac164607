r"""math-verify, for what nothing cheaper decides. The only module that imports it, and only inside a worker.

Its own time limit (an alarm of the wall clock, unsafe in threads) is off; the pool's CPU limit takes its place.
Golds and answers are given to it boxed, which is how it reads letters, lists and tuples rightly.
"""

from __future__ import annotations

import logging

from math_verify import LatexExtractionConfig, parse, verify

from megatron_seirenes.records import VerdictReason

logging.getLogger("math_verify").setLevel(logging.CRITICAL)

_TARGETS = [LatexExtractionConfig()]


def _parsed(answer: str) -> list:
    return parse(rf"\boxed{{{answer}}}", _TARGETS, parsing_timeout=None, fallback_mode="no_fallback")


def compare(gold: str, answer: str) -> VerdictReason:
    """What math-verify says of two answers, without their boxes."""
    left, right = _parsed(gold), _parsed(answer)
    if not left or not right:
        return "unparsable"
    return "match" if verify(left, right, timeout_seconds=None) else "mismatch"
