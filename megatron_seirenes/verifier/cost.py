r"""Refuses what would be expensive, from its structure alone, before any algebra is tried.

The CPU limit of the pool stops everything in the end; these caps make the worst inputs cost microseconds instead, and
give them a verdict that no clock has a part in. Each cap is far above what answers to real questions need.
"""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST_ANSWER = 4_000
DEEPEST_NESTING = 100
MOST_ELEMENTS = 2_500
MOST_SIGNS = 400
MOST_BARS = 40
LONGEST_NUMERAL = 1_000
LARGEST_DECIMAL_EXPONENT = 2_000
MOST_BITS = 20_000
LARGEST_FACTORIAL = 1_500
LARGEST_ARGUMENT = 10**18
LARGEST_ANGLE = 10**50
MOST_DIGITS = 2_000

ALGEBRA_LONGEST = 600
ALGEBRA_DEEPEST = 12
ALGEBRA_LONGEST_NUMERAL = 60
ALGEBRA_LARGEST_RANGE = 1_000
ALGEBRA_LARGEST_FACTORIAL = 200


class TooCostly(ValueError):
    """Judging this would cost too much; names the cap."""


_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_NUMERAL = re.compile(r"\d+", re.ASCII)
_POWERED = re.compile(r"\^\s*(?:\{\s*)?[-+]?\s*(\d+)", re.ASCII)
_FACTORIAL = re.compile(r"(\d+)\s*[)}\]]*\s*!", re.ASCII)
_RANGED = re.compile(r"\\(?:sum|prod|int|bigcup|bigcap)(?![a-zA-Z])")
_BINOMIAL = re.compile(r"\\[dt]?binom(?![a-zA-Z])|\\choose")


def nesting(text: str) -> int:
    """How deep the brackets of `text` go, of whatever kind."""
    depth = deepest = 0
    for character in text:
        if character in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSING:
            depth -= 1
    return deepest


def is_balanced(text: str) -> bool:
    """Whether every brace is closed after it was opened; escaped ones do not count."""
    depth = 0
    for match in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            return False
    return depth == 0


def check_expression(text: str) -> None:
    """What the reader of expressions takes on. Raises TooCostly."""
    if len(text) > LONGEST_ANSWER:
        raise TooCostly(f"longer than {LONGEST_ANSWER} characters")
    if nesting(text) > DEEPEST_NESTING:
        raise TooCostly(f"nested deeper than {DEEPEST_NESTING}")
    if max(text.count(sign) for sign in ("^", "-", "\\sqrt")) > MOST_SIGNS or text.count("|") > MOST_BARS:
        raise TooCostly(f"more than {MOST_SIGNS} powers, signs or roots, or {MOST_BARS} bars")


def check_numeral(text: str) -> None:
    """A numeral that can be made exact cheaply. Raises TooCostly."""
    if len(text) > LONGEST_NUMERAL:
        raise TooCostly(f"a numeral of more than {LONGEST_NUMERAL} characters")
    exponent = text.lower().partition("e")[2]
    if exponent and abs(int(exponent)) > LARGEST_DECIMAL_EXPONENT:
        raise TooCostly(f"a decimal exponent beyond {LARGEST_DECIMAL_EXPONENT}")


def power_is_cheap(base: Fraction, exponent: int) -> bool:
    """Whether `base ** exponent` stays under `MOST_BITS` bits."""
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return bits <= 1 or bits * abs(exponent) <= MOST_BITS


def check_algebra(text: str) -> None:
    """What math-verify is trusted with: short, shallow, small numbers, short ranges, no towers. Raises TooCostly."""
    if len(text) > ALGEBRA_LONGEST:
        raise TooCostly(f"longer than {ALGEBRA_LONGEST} characters")
    if nesting(text) > ALGEBRA_DEEPEST:
        raise TooCostly(f"nested deeper than {ALGEBRA_DEEPEST}")
    if not is_balanced(text):
        raise TooCostly("unbalanced braces")
    numerals = _NUMERAL.findall(text)
    if any(len(numeral) > ALGEBRA_LONGEST_NUMERAL for numeral in numerals):
        raise TooCostly("a very long numeral")
    _check_growth(text, max((int(numeral) for numeral in numerals), default=0))


def _check_growth(text: str, largest: int) -> None:
    """Powers of powers, factorials, binomials and ranges grow faster than their text: their numerals must be small."""
    if any(int(exponent) > ALGEBRA_LARGEST_RANGE for exponent in _POWERED.findall(text)):
        raise TooCostly("a large exponent")
    if text.count("^") > 1 and _is_tower(text) and largest > 9:
        raise TooCostly("a tower of powers")
    if any(int(numeral) > ALGEBRA_LARGEST_FACTORIAL for numeral in _FACTORIAL.findall(text)):
        raise TooCostly("a large factorial")
    if re.search(r"!\s*[)}\]]*\s*!", text) or (text.count("!") and largest > ALGEBRA_LARGEST_RANGE):
        raise TooCostly("factorials of what may be large")
    if (_RANGED.search(text) or _BINOMIAL.search(text)) and largest > ALGEBRA_LARGEST_RANGE:
        raise TooCostly("a long range")


def _is_tower(text: str) -> bool:
    """Whether a power stands inside the exponent of another."""
    depth_of_exponent: list[int] = []
    depth = 0
    for place, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
            while depth_of_exponent and depth < depth_of_exponent[-1]:
                depth_of_exponent.pop()
        elif character == "^":
            if depth_of_exponent and depth >= depth_of_exponent[-1]:
                return True
            if text[place + 1 : place + 3].lstrip().startswith("{"):
                depth_of_exponent.append(depth + 1)
    return False
