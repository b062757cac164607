r"""Whether two numbers or expressions are the same, with what stands around them: units, percent and degree signs."""

from __future__ import annotations

from fractions import Fraction

import mpmath

from megatron_seirenes.verifier import cost
from megatron_seirenes.verifier.answers import Scalar
from megatron_seirenes.verifier.expression import Call, Node, Num, Sym
from megatron_seirenes.verifier.options import Options
from megatron_seirenes.verifier.values import exact, real_number, same_value, variables, working_precision


def same_scalar(gold: Scalar, answer: Scalar, options: Options) -> bool:
    if gold.unit and answer.unit:
        if gold.unit.dimensions != answer.unit.dimensions:
            return False
        left, right = _times(gold.node, gold.unit.factor), _times(answer.node, answer.unit.factor)
        return (
            _same_node(left, right, options)
            if gold.unit.factor != answer.unit.factor
            else _same_node(gold.node, answer.node, options)
        )
    if gold.unit and options.units == "required":
        return False
    if gold.percent != answer.percent:
        return _same_percent(gold, answer, options)
    bare, full = _without_degrees(gold.node), _without_degrees(answer.node)
    if (bare == gold.node) != (full == answer.node) and _same_node(bare, full, options):
        return True
    return _same_node(gold.node, answer.node, options)


def _times(node: Node, factor: Fraction) -> Node:
    if factor == 1:
        return node
    value = exact(node)
    return (
        Call("*", (node, Num(factor))) if value is None else Num(value * factor, isinstance(node, Num) and node.decimal)
    )


def _same_percent(gold: Scalar, answer: Scalar, options: Options) -> bool:
    if options.percent == "unit" and _same_node(gold.node, answer.node, options):
        return True
    left, right = (_times(side.node, Fraction(1, 100)) if side.percent else side.node for side in (gold, answer))
    return _same_node(left, right, options)


def _without_degrees(node: Node) -> Node:
    """`node` without the degree signs that are units rather than part of a function's argument."""
    if not isinstance(node, Call) or node.op not in {"degree", "neg", "+", "*", "/"}:
        return node
    if node.op == "degree":
        return node.args[0]
    return Call(node.op, tuple(_without_degrees(argument) for argument in node.args))


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
    """A decimal for a number without a finite decimal, rounded finely enough; or within the tolerance."""
    decimals = [_decimal(gold), _decimal(answer)]
    if decimals == [None, None] or variables(gold) or variables(answer):
        return False
    with working_precision():
        left, right = real_number(gold), real_number(answer)
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
