r"""Whether two answers are the same, kind by kind. The first argument is always the gold: what it states is what is due.

Raises Undefined or TooCostly when numbers cannot be told apart, never guesses. What is arguable is in `Options`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cmp_to_key

import mpmath

from megatron_seirenes.verifier import cost
from megatron_seirenes.verifier.answers import (
    Answer,
    Clock,
    Matrix,
    Named,
    Ordered,
    Piece,
    Ratio,
    Region,
    Relation,
    Scalar,
    Several,
    Words,
    as_pieces,
)
from megatron_seirenes.verifier.cost import TooCostly
from megatron_seirenes.verifier.expression import Call, Node, Num, Sym, Unreadable
from megatron_seirenes.verifier.options import Options
from megatron_seirenes.verifier.values import Evaluation, Undefined, exact, same_value, variables

MOST_PAIRINGS = 4_000
COMPARED_DIGITS = 60
RATIO_TOLERANCE_DIGITS = 40


def same(gold: Answer, answer: Answer, options: Options) -> bool:
    """Whether `answer` says what `gold` says."""
    if gold == answer:
        return True
    gold, answer = _without_names(gold, answer)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _same_relation(gold, answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return False
    if isinstance(gold, Words) or isinstance(answer, Words):
        return _same_words(gold, answer, options)
    if isinstance(gold, Region) or isinstance(answer, Region):
        return _same_region(gold, answer)
    if isinstance(gold, Several) or isinstance(answer, Several):
        return _same_several(gold, answer, options)
    if isinstance(gold, Ordered) and isinstance(answer, Ordered):
        return gold.brackets == answer.brackets and _same_in_order(gold.items, answer.items, options)
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        rows = len(gold.rows) == len(answer.rows)
        return rows and all(_same_in_order(left, right, options) for left, right in zip(gold.rows, answer.rows, strict=True))
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        return _same_clock(gold, answer)
    if isinstance(gold, Ratio) or isinstance(answer, Ratio):
        return _same_ratio(gold, answer)
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        return _same_scalar(gold, answer, options)
    return False


def _without_names(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    """Drops the name of a value unless both sides name theirs, with different symbols. `y = f` may meet an equation."""
    if isinstance(gold, Named) and isinstance(answer, Relation):
        return _as_relation(gold), answer
    if isinstance(answer, Named) and isinstance(gold, Relation):
        return gold, _as_relation(answer)
    if isinstance(gold, Named) and isinstance(answer, Named):
        if gold.name != answer.name and _is_symbol(gold.name) and _is_symbol(answer.name):
            return gold, answer
        return gold.value, answer.value
    if isinstance(gold, Named):
        return gold.value, answer
    if isinstance(answer, Named):
        return gold, answer.value
    return gold, answer


def _is_symbol(name: str) -> bool:
    return len(name.partition("(")[0].partition("_")[0].strip("\\'")) == 1 or name.startswith("\\")


def _as_relation(named: Named) -> Answer:
    return Relation("=", Sym(named.name), named.value.node) if isinstance(named.value, Scalar) else named


# -- words, times, ratios


def _same_words(gold: Answer, answer: Answer, options: Options) -> bool:
    if isinstance(gold, Words) and isinstance(answer, Words):
        if options.letter_case == "ignore":
            return gold.text.lower() == answer.text.lower()
        return gold.text == answer.text
    return False


def _same_clock(gold: Clock, answer: Clock) -> bool:
    """The same time; am or pm may be left out on one side, and 15:30 is 3:30 pm."""
    if (gold.minute, gold.second) != (answer.minute, answer.second):
        return False
    if gold.afternoon is None or answer.afternoon is None:
        hours = {clock.hour if clock.afternoon is None else _hour_of_day(clock) for clock in (gold, answer)}
        return gold.hour == answer.hour or len(hours) == 1
    return _hour_of_day(gold) == _hour_of_day(answer)


def _hour_of_day(clock: Clock) -> int:
    return clock.hour % 12 + (12 if clock.afternoon else 0)


def _same_ratio(gold: Answer, answer: Answer) -> bool:
    """Ratios are the same up to a factor; one of two parts is the quotient."""
    if isinstance(gold, Ratio) and isinstance(answer, Ratio) and len(gold.parts) == len(answer.parts):
        first, other = gold.parts[0], answer.parts[0]
        return all(
            same_value(Call("*", (left, other)), Call("*", (right, first)))
            for left, right in zip(gold.parts, answer.parts, strict=True)
        )
    quotients = [_quotient(side) for side in (gold, answer)]
    return None not in quotients and same_value(*(quotient for quotient in quotients if quotient is not None))


def _quotient(side: Answer) -> Node | None:
    if isinstance(side, Ratio) and len(side.parts) == 2:
        return Call("/", side.parts)
    return side.node if isinstance(side, Scalar) else None


# -- several, in order and in any order


def _same_in_order(gold: Sequence[Answer], answer: Sequence[Answer], options: Options) -> bool:
    return len(gold) == len(answer) and all(same(left, right, options) for left, right in zip(gold, answer, strict=True))


def _same_several(gold: Answer, answer: Answer, options: Options) -> bool:
    """Answers in any order. Against a tuple or list the order counts; a set counts each element once."""
    if isinstance(gold, Ordered) or isinstance(answer, Ordered):
        return _items_meet_tuple(gold, answer, options)
    left, right = _flat(gold), _flat(answer)
    quick = _same_numbers(left, right, braces=_has_braces(gold) or _has_braces(answer))
    if quick is not None:
        return quick
    if len(left) * len(right) > MOST_PAIRINGS:
        raise TooCostly("too many answers to pair")
    equal = lambda one, other: same(one, other, options)  # noqa: E731
    if _has_braces(gold) or _has_braces(answer):
        return all(any(equal(one, other) for other in right) for one in left) and all(
            any(equal(one, other) for one in left) for other in right
        )
    return _pair_off(left, right, equal)


def _items_meet_tuple(gold: Answer, answer: Answer, options: Options) -> bool:
    several, ordered = (gold, answer) if isinstance(gold, Several) else (answer, gold)
    if not isinstance(several, Several) or not isinstance(ordered, Ordered):
        return False
    if len(several.items) == 1 or several.braces or any(isinstance(item, Ordered) for item in several.items):
        return False
    if isinstance(answer, Several) and ordered.brackets != "()":
        return False
    return _same_in_order(_unnamed(_items(gold)), _unnamed(_items(answer)), options)


def _items(side: Answer) -> tuple[Answer, ...]:
    return side.items if isinstance(side, Ordered | Several) else (side,)


def _unnamed(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    return tuple(item.value if isinstance(item, Named) else item for item in items)


def _has_braces(side: Answer) -> bool:
    return isinstance(side, Several) and side.braces


def _flat(side: Answer) -> list[Answer]:
    if not isinstance(side, Several):
        return [side]
    return [leaf for item in side.items for leaf in (_flat(item) if not _has_braces(item) else [item])]


def _same_numbers(left: list[Answer], right: list[Answer], braces: bool) -> bool | None:
    """All plain rational numbers: compared sorted, however many. None when they are not."""
    values: list[list[Fraction]] = []
    for side in (left, right):
        numbers = [exact(item.node) for item in side if isinstance(item, Scalar) and item.unit is None and not item.percent]
        if len(numbers) != len(side) or None in numbers:
            return None
        values.append(sorted(number for number in numbers if number is not None))
    return set(values[0]) == set(values[1]) if braces else values[0] == values[1]


def _pair_off(left: list[Answer], right: list[Answer], equal: Callable[[Answer, Answer], bool]) -> bool:
    if len(left) != len(right):
        return False
    free = list(right)
    for one in left:
        for place, other in enumerate(free):
            if equal(one, other):
                del free[place]
                break
        else:
            return False
    return True


# -- unions of intervals


def _same_region(gold: Answer, answer: Answer) -> bool:
    try:
        left, right = as_pieces(gold), as_pieces(answer)
    except Unreadable:
        return False
    if not _may_be_interval(gold, answer) or not _may_be_interval(answer, gold):
        return False
    left, right = _merged(left), _merged(right)
    return len(left) == len(right) and all(_same_piece(one, other) for one, other in zip(left, right, strict=True))


def _may_be_interval(side: Answer, other: Answer) -> bool:
    """Numbers without brackets are no interval; they may be points of a union."""
    return not isinstance(side, Several) or isinstance(other, Region)


def _same_piece(one: Piece, other: Piece) -> bool:
    if (one.low_closed, one.high_closed) != (other.low_closed, other.high_closed):
        return False
    return _same_end(one.low, other.low) and _same_end(one.high, other.high)


def _same_end(one: Node | None, other: Node | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_value(one, other)


def _merged(pieces: tuple[Piece, ...]) -> list[Piece]:
    """The union in order, overlapping and touching pieces joined; as it stands when its ends are not all numbers."""
    ends = [end for piece in pieces for end in (piece.low, piece.high) if end is not None]
    if any(variables(end) for end in ends):
        return list(pieces)
    with mpmath.workdps(COMPARED_DIGITS):
        ordered = sorted(pieces, key=cmp_to_key(lambda one, other: _compare(_low(one), _low(other))))
        merged: list[Piece] = []
        for piece in ordered:
            if merged and _touch(merged[-1], piece):
                merged[-1] = _join(merged[-1], piece)
            else:
                merged.append(piece)
    return merged


def _number(node: Node) -> mpmath.mpf:
    return mpmath.re(Evaluation(COMPARED_DIGITS, {}).value(node))


def _low(piece: Piece) -> mpmath.mpf:
    return mpmath.ninf if piece.low is None else _number(piece.low)


def _high(piece: Piece) -> mpmath.mpf:
    return mpmath.inf if piece.high is None else _number(piece.high)


def _compare(one: mpmath.mpf, other: mpmath.mpf) -> int:
    return (one > other) - (one < other)


def _touch(one: Piece, other: Piece) -> bool:
    high, low = _high(one), _low(other)
    return low < high or (low == high and (one.high_closed or other.low_closed))


def _join(one: Piece, other: Piece) -> Piece:
    low_closed = one.low_closed or (other.low_closed and _low(one) == _low(other))
    order = _compare(_high(one), _high(other))
    farther = one if order > 0 else other
    high_closed = farther.high_closed if order else one.high_closed or other.high_closed
    return Piece(one.low, low_closed, farther.high, high_closed)


# -- equations and inequalities


def _same_relation(gold: Answer, answer: Answer) -> bool:
    """Equal up to a factor: constant, and positive for inequalities. An equation is never its right side alone."""
    if not isinstance(gold, Relation) or not isinstance(answer, Relation) or gold.op != answer.op:
        return False
    left, right = _difference(gold), _difference(answer)
    if same_value(left, right):
        return True
    names = sorted(variables(left) | variables(right))
    if not names:
        return False
    quotient = Call("/", (left, right))
    moved = _renamed(quotient, names)
    if not same_value(quotient, moved):
        return False
    return gold.op in {"=", "!="} or _is_positive(quotient, names)


def _difference(relation: Relation) -> Node:
    return Call("+", (relation.left, Call("neg", (relation.right,))))


def _renamed(node: Node, names: list[str]) -> Node:
    """The same tree over other letters: a quotient that keeps its value when all letters change is constant."""
    if isinstance(node, Sym):
        return Sym(node.name + "?") if node.name in names else node
    if isinstance(node, Num):
        return node
    return Call(node.op, tuple(_renamed(argument, names) for argument in node.args))


def _is_positive(quotient: Node, names: list[str]) -> bool:
    with mpmath.workdps(COMPARED_DIGITS):
        point = {name: mpmath.mpf(number + 2) / 7 for number, name in enumerate(names)}
        return mpmath.re(Evaluation(COMPARED_DIGITS, point).value(quotient)) > 0


# -- numbers and expressions


def _same_scalar(gold: Scalar, answer: Scalar, options: Options) -> bool:
    if gold.unit and answer.unit:
        if gold.unit.dimensions != answer.unit.dimensions:
            return False
        left, right = _times(gold.node, gold.unit.factor), _times(answer.node, answer.unit.factor)
        return _same_node(left, right, options) if gold.unit.factor != answer.unit.factor else _same_node(gold.node, answer.node, options)
    if gold.unit and options.units == "required":
        return False
    if gold.percent != answer.percent:
        return _same_percent(gold, answer, options)
    if _is_degrees(gold.node) != _is_degrees(answer.node):
        bare, full = _bare_degrees(gold.node), _bare_degrees(answer.node)
        return _same_node(bare, full, options) or _same_node(gold.node, answer.node, options)
    return _same_node(gold.node, answer.node, options)


def _times(node: Node, factor: Fraction) -> Node:
    return node if factor == 1 else Call("*", (node, Num(factor)))


def _same_percent(gold: Scalar, answer: Scalar, options: Options) -> bool:
    if options.percent == "unit" and _same_node(gold.node, answer.node, options):
        return True
    left, right = (_times(side.node, Fraction(1, 100)) if side.percent else side.node for side in (gold, answer))
    return _same_node(left, right, options)


def _is_degrees(node: Node) -> bool:
    return isinstance(node, Call) and node.op == "degree"


def _bare_degrees(node: Node) -> Node:
    return node.args[0] if isinstance(node, Call) and node.op == "degree" else node


def _same_node(gold: Node, answer: Node, options: Options) -> bool:
    if gold == answer:
        return True
    if _is_infinite(gold) or _is_infinite(answer):
        return False
    if options.letter_case == "ignore" and isinstance(gold, Sym) and isinstance(answer, Sym):
        return gold.name.lower() == answer.name.lower()
    if options.unsimplified == "refuse" and is_numeral(gold) and is_undone(answer):
        return False
    return same_value(gold, answer) or _near_enough(gold, answer, options)


def _is_infinite(node: Node) -> bool:
    bare = node.args[0] if isinstance(node, Call) and node.op == "neg" else node
    return bare == Sym("infinity")


def is_numeral(node: Node) -> bool:
    """A number written down: an integer, decimal, fraction or mixed number, with or without a sign."""
    if isinstance(node, Call) and node.op in {"neg", "/"}:
        return all(is_numeral(argument) for argument in node.args)
    return isinstance(node, Num) or _is_scientific(node)


def _is_scientific(node: Node) -> bool:
    """A numeral times a power of ten."""
    if not isinstance(node, Call) or node.op != "*" or len(node.args) != 2:
        return False
    power = node.args[1]
    ten = isinstance(power, Call) and power.op == "^" and exact(power.args[0]) == 10
    return isinstance(node.args[0], Num) and ten


def is_undone(node: Node) -> bool:
    """Whether a sum, difference, product or quotient of known numbers was left to the reader to work out."""
    if not isinstance(node, Call) or _is_scientific(node):
        return False
    if node.op in {"+", "*"} and sum(exact(argument) is not None for argument in node.args) > 1:
        return True
    return any(is_undone(argument) for argument in node.args)


def _near_enough(gold: Node, answer: Node, options: Options) -> bool:
    """A decimal for a number without a finite decimal, rounded finely enough; or within the tolerance, if there is one."""
    decimals = [_decimal(gold), _decimal(answer)]
    if decimals == [None, None] or variables(gold) or variables(answer):
        return False
    with mpmath.workdps(COMPARED_DIGITS):
        left, right = _number(gold), _number(answer)
        if options.relative_tolerance and abs(left - right) <= options.relative_tolerance * abs(left):
            return True
        if None not in decimals:
            return False
        decimal, other = (decimals[0], answer) if decimals[0] is not None else (decimals[1], gold)
        value = exact(other)
        if decimal is None or decimal.digits < options.decimal_digits or (value is not None and _is_finite(value)):
            return False
        return abs(left - right) <= _last_place(decimal) / 2


def _decimal(node: Node) -> Num | None:
    bare = node.args[0] if isinstance(node, Call) and node.op == "neg" else node
    if isinstance(bare, Call) and _is_scientific(bare) and isinstance(bare.args[0], Num):
        value = exact(bare)
        return Num(value, True, bare.args[0].digits) if value is not None else None
    return bare if isinstance(bare, Num) and bare.decimal else None


def _last_place(decimal: Num) -> mpmath.mpf:
    """The worth of one unit of the decimal's last digit."""
    if not decimal.value:
        return mpmath.mpf(0)
    leading = mpmath.floor(mpmath.log10(abs(mpmath.mpf(decimal.value.numerator) / decimal.value.denominator)))
    return mpmath.mpf(10) ** (leading - decimal.digits + 1)


def _is_finite(value: Fraction) -> bool:
    """Whether a rational number has a finite decimal."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
            if rest.bit_length() > cost.MOST_BITS:
                return False
    return rest == 1


__all__ = ["Undefined", "is_numeral", "is_undone", "same"]
