r"""math-verify, for what nothing cheaper decides. The only module that imports it, and only inside a worker.

Its own time limit (an alarm of the wall clock, unsafe in threads) is off; the pool's CPU limit takes its place.
Golds and answers are given to it boxed, which is how it reads letters, lists and tuples rightly.
"""

from __future__ import annotations

import logging
import re

from math_verify import LatexExtractionConfig, parse, verify

from megatron_seirenes.records import VerdictReason
from megatron_seirenes.verifier.tokens import FUNCTIONS, GREEK, Unreadable

logging.getLogger("math_verify").setLevel(logging.CRITICAL)

_TARGETS = [LatexExtractionConfig()]
_CHARACTERS = re.compile(r"[a-zA-Z0-9\\{}()\[\]^_+*/=<>!|,;:&°.\- ]*\Z", re.ASCII)
_COMMAND = re.compile(r"\\([a-zA-Z]+)")
_SUBSCRIPTED_NUMBER = re.compile(r"[\d)}\]]\s*_")
_COMMANDS = (
    FUNCTIONS
    | GREEK
    | frozenset(
        "sum prod int iint iiint oint lim to rightarrow infty mod pmod bmod gcd lcm max min sup inf det frac binom "
        "sqrt log lg pi lfloor rfloor lceil rceil cup cap in setminus emptyset mathbb pm mp begin end langle rangle "
        "circ partial nabla cdot choose".split()
    )
)


def check_vocabulary(text: str) -> None:
    """Raises Unreadable for characters and commands that math-verify would drop in silence rather than understand."""
    if not _CHARACTERS.match(text):
        raise Unreadable("characters that are no mathematics")
    if _SUBSCRIPTED_NUMBER.search(text):
        raise Unreadable("a number with a subscript")
    unknown = set(_COMMAND.findall(text)) - _COMMANDS
    if unknown:
        raise Unreadable(f"commands {sorted(unknown)}")


def _parsed(answer: str) -> list:
    return parse(rf"\boxed{{{answer}}}", _TARGETS, parsing_timeout=None, fallback_mode="no_fallback")


def compare(gold: str, answer: str) -> VerdictReason:
    """What math-verify says of two answers, without their boxes."""
    left, right = _parsed(gold), _parsed(answer)
    if not left or not right:
        return "unparsable"
    return "match" if verify(left, right, timeout_seconds=None) else "mismatch"
