r"""Whether two answers are the same, kind by kind. The first argument is always the gold: what it states is due.

Raises Undefined or TooCostly when numbers cannot be told apart, never guesses. What is arguable is in `Options`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from megatron_seirenes.verifier.answers import (
    Answer,
    Clock,
    Matrix,
    Named,
    Ordered,
    Ratio,
    Region,
    Relation,
    Scalar,
    Several,
    Words,
)
from megatron_seirenes.verifier.cost import TooCostly
from megatron_seirenes.verifier.expression import Call, Node, Num, Sym
from megatron_seirenes.verifier.numbers import is_undone, same_scalar
from megatron_seirenes.verifier.options import Options
from megatron_seirenes.verifier.relations import same_region, same_relation
from megatron_seirenes.verifier.values import exact, same_value

MOST_PAIRINGS = 4_000


def same(gold: Answer, answer: Answer, options: Options) -> bool:
    """Whether `answer` says what `gold` says."""
    if gold == answer:
        return True
    gold, answer = _without_names(gold, answer)
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return same_relation(gold, answer)
    if isinstance(gold, Named) or isinstance(answer, Named):
        return False
    if isinstance(gold, Words) or isinstance(answer, Words):
        return _same_words(gold, answer, options)
    if isinstance(gold, Region) or isinstance(answer, Region):
        return same_region(gold, answer)
    if isinstance(gold, Several) or isinstance(answer, Several):
        return _same_several(gold, answer, options)
    if isinstance(gold, Ordered) and isinstance(answer, Ordered):
        return gold.brackets == answer.brackets and _same_in_order(gold.items, answer.items, options)
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        rows = len(gold.rows) == len(answer.rows)
        return rows and all(
            _same_in_order(left, right, options) for left, right in zip(gold.rows, answer.rows, strict=True)
        )
    if isinstance(gold, Clock) or isinstance(answer, Clock):
        return _same_clock(gold, answer)
    if isinstance(gold, Ratio) or isinstance(answer, Ratio):
        return _same_ratio(gold, answer)
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        return same_scalar(gold, answer, options)
    return False


def _without_names(gold: Answer, answer: Answer) -> tuple[Answer, Answer]:
    """Drops the name of a value unless both sides name theirs, with different symbols. `y = f` may meet an equation."""
    if isinstance(gold, Named) and isinstance(answer, Relation):
        return _as_relation(gold), answer
    if isinstance(answer, Named) and isinstance(gold, Relation):
        return gold, _as_relation(answer)
    if isinstance(gold, Named) and isinstance(answer, Named):
        if gold.name != answer.name and _is_symbol(gold.name) and _is_symbol(answer.name):
            return _as_relation(gold), _as_relation(answer)
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


def _same_words(gold: Answer, answer: Answer, options: Options) -> bool:
    if isinstance(gold, Words) and isinstance(answer, Words):
        if options.letter_case == "ignore":
            return gold.text.lower() == answer.text.lower()
        return gold.text == answer.text
    return False


def _same_clock(gold: Answer, answer: Answer) -> bool:
    """The same time; am or pm may be left out on one side, 15:30 is 3:30 pm, and 9 is 9:00."""
    gold, answer = _as_clock(gold), _as_clock(answer)
    if not isinstance(gold, Clock) or not isinstance(answer, Clock):
        return False
    if (gold.minute, gold.second) != (answer.minute, answer.second):
        return False
    if gold.afternoon is None or answer.afternoon is None:
        hours = {clock.hour if clock.afternoon is None else _hour_of_day(clock) for clock in (gold, answer)}
        return gold.hour == answer.hour or len(hours) == 1
    return _hour_of_day(gold) == _hour_of_day(answer)


def _as_clock(side: Answer) -> Answer:
    hour = exact(side.node) if isinstance(side, Scalar) and side.unit is None else None
    return Clock(int(hour), 0, 0, None) if hour is not None and hour.denominator == 1 else side


def _hour_of_day(clock: Clock) -> int:
    return clock.hour % 12 + (12 if clock.afternoon else 0)


def _same_ratio(gold: Answer, answer: Answer) -> bool:
    """Ratios are the same up to a factor; one of two parts is the quotient."""
    if isinstance(gold, Ratio) and isinstance(answer, Ratio) and len(gold.parts) == len(answer.parts):
        first, other = gold.parts[0], answer.parts[0]
        return not (_is_zero(first) or _is_zero(other)) and all(
            same_value(Call("*", (left, other)), Call("*", (right, first)))
            for left, right in zip(gold.parts, answer.parts, strict=True)
        )
    quotients = [_quotient(side) for side in (gold, answer)]
    return None not in quotients and same_value(*(quotient for quotient in quotients if quotient is not None))


def _is_zero(node: Node) -> bool:
    return same_value(node, Num(Fraction(0)))


def _quotient(side: Answer) -> Node | None:
    if isinstance(side, Ratio) and len(side.parts) == 2:
        return Call("/", side.parts)
    return side.node if isinstance(side, Scalar) else None


def _same_in_order(gold: Sequence[Answer], answer: Sequence[Answer], options: Options) -> bool:
    return len(gold) == len(answer) and all(
        same(left, right, options) for left, right in zip(gold, answer, strict=True)
    )


def _same_several(gold: Answer, answer: Answer, options: Options) -> bool:
    """Answers in any order. Against a tuple or list the order counts; a set counts each element once."""
    if isinstance(gold, Ordered) or isinstance(answer, Ordered):
        return _items_meet_tuple(gold, answer, options)
    left, right = _flat(gold), _flat(answer)
    undone = options.unsimplified == "refuse" and any(
        isinstance(item, Scalar) and is_undone(item.node) for item in right
    )
    quick = None if undone else _same_numbers(left, right, braces=_has_braces(gold) or _has_braces(answer))
    if quick is not None:
        return quick
    if len(left) * len(right) > MOST_PAIRINGS:
        raise TooCostly("too many answers to pair")

    def equal(one: Answer, other: Answer) -> bool:
        return same(one, other, options)

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
    names = [item.name for item in several.items if isinstance(item, Named)]
    if len(set(names)) < len(names):
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
        numbers = [
            exact(item.node) for item in side if isinstance(item, Scalar) and item.unit is None and not item.percent
        ]
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
