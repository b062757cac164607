r"""What a tree is worth: exactly, as a rational number, or to as many digits as are asked for at a given point.

`exact` is certain or silent. `same_value` decides equality of two trees: first at thirty digits, which refuses nearly
everything that differs; what agrees must agree again at a precision that grows with the magnitudes met on the way, at
several points where there are variables. The points are fixed (they depend on the variables' names alone), some are
negative; where only one side is real, or one has a pole, a point says nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import mpmath

from megatron_seirenes.verifier import cost
from megatron_seirenes.verifier.cost import TooCostly
from megatron_seirenes.verifier.expression import Call, Node, Num, Sym

FIRST_DIGITS = 30
COMPARED_DIGITS = 60
SPARE_DIGITS = 60
GUARD_DIGITS = 15
POINTS_NEEDED = 2
SPANS = (1.0, 1.0, 0.25, 6.0, 0.0625, 300.0, 2_000.0, 1.0, 1.0)
STEPPED_SPANS = (1.0, 6.0, 40.0, 300.0, 2e3, 1e4, 1e5, 1e6, 1e7, 1e8)
WHOLE_POINTS = 12
STEPPED = frozenset({"floor", "ceil", "abs"})

Number = Any


class Undefined(ValueError):
    """The tree has no value there: a pole, a division by zero, an indeterminate form."""


class OnlyOneReal(Undefined):
    """One tree is real at a point where the other is not: they may still be the same where both are real."""


def exact(node: Node) -> Fraction | None:
    """The rational value of `node`, or None when it has none, has variables, or would be too large to write down."""
    if isinstance(node, Num):
        return node.value
    if isinstance(node, Sym):
        return None
    rule = _EXACT.get(node.op)
    if rule is None:
        return None
    values = [exact(argument) for argument in node.args]
    if any(value is None for value in values):
        return None
    return rule(*values)


def _exact_sum(*terms: Fraction) -> Fraction:
    return sum(terms, Fraction(0))


def _exact_product(*factors: Fraction) -> Fraction | None:
    product = Fraction(1)
    for factor in factors:
        product *= factor
        if product.numerator.bit_length() > 4 * cost.MOST_BITS or product.denominator.bit_length() > 4 * cost.MOST_BITS:
            return None
    return product


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return _exact_root_power(base, exponent)
    if (base == 0 and exponent <= 0) or not cost.power_is_cheap(base, exponent.numerator):
        return None
    return base**exponent.numerator


def _exact_root_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    root = _exact_root(base, Fraction(exponent.denominator)) if base >= 0 else None
    return None if root is None else _exact_power(root, Fraction(exponent.numerator))


def _exact_root(radicand: Fraction, degree: Fraction) -> Fraction | None:
    """The rational root where there is one; odd roots of negative numbers are real."""
    if degree.denominator != 1 or not 2 <= degree <= 64:
        return None
    if radicand < 0:
        root = _exact_root(-radicand, degree) if degree.numerator % 2 else None
        return None if root is None else -root
    above = _integer_root(radicand.numerator, degree.numerator)
    below = _integer_root(radicand.denominator, degree.numerator)
    return None if above is None or below is None else Fraction(above, below)


def _integer_root(number: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(number)
        return root if root * root == number else None
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**degree < number else (low, middle)
    return low if low**degree == number else None


def _exact_factorial(number: Fraction) -> Fraction | None:
    if number.denominator != 1 or not 0 <= number <= cost.LARGEST_FACTORIAL:
        return None
    return Fraction(math.factorial(number.numerator))


def _exact_binomial(above: Fraction, below: Fraction) -> Fraction | None:
    whole = above.denominator == below.denominator == 1
    if not whole or not 0 <= below <= above <= cost.LARGEST_FACTORIAL:
        return None
    return Fraction(math.comb(above.numerator, below.numerator))


_EXACT: Mapping[str, Callable[..., Fraction | None]] = {
    "+": _exact_sum,
    "*": _exact_product,
    "/": lambda above, below: above / below if below else None,
    "neg": lambda value: -value,
    "^": _exact_power,
    "root": _exact_root,
    "!": _exact_factorial,
    "binom": _exact_binomial,
    "abs": lambda value: abs(value),
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
}


@dataclass(slots=True)
class Evaluation:
    """One evaluation at `digits` digits: the point, and the largest and the farthest magnitude met on the way.

    `scale` is the largest |value|; `decades` the largest |log10 |value||.
    """

    digits: int
    point: Mapping[str, Number]
    scale: Number = field(default_factory=lambda: mpmath.mpf(1))
    decades: int = 0

    def value(self, node: Node) -> Number:
        """The value of `node`, real or complex. Raises Undefined or TooCostly."""
        if isinstance(node, Num):
            result = mpmath.mpf(node.value.numerator) / node.value.denominator
        elif isinstance(node, Sym):
            result = self._symbol(node.name)
        else:
            result = self._call(node)
        self._note(result)
        return result

    def _symbol(self, name: str) -> Number:
        if name == "infinity":
            raise Undefined("infinity")
        constant = _CONSTANTS.get(name)
        return constant() if constant else self.point[name]

    def _call(self, node: Call) -> Number:
        if node.op == "apply":
            return self._apply(node)
        values = [self.value(argument) for argument in node.args]
        rule = _NUMERIC.get(node.op)
        if rule is None:
            raise Undefined(node.op)
        if node.op in _SATURATING:
            self.decades = max(self.decades, int(min(abs(values[0]), cost.LARGEST_ARGUMENT)))
        try:
            return rule(*values)
        except (ZeroDivisionError, ValueError, OverflowError) as error:
            if isinstance(error, TooCostly):
                raise
            raise Undefined(node.op) from error

    def _apply(self, node: Call) -> Number:
        """A function nobody knows: some number that depends on its name and on the values of its arguments."""
        head, *arguments = node.args
        name = head.name if isinstance(head, Sym) else ""
        values = ",".join(mpmath.nstr(mpmath.mpmathify(self.value(argument)), 12) for argument in arguments)
        return _fixed_number(f"{name}({values})")

    def _note(self, value: Number) -> None:
        size = abs(value)
        if not mpmath.isfinite(size):
            raise Undefined("not finite")
        self.scale = max(self.scale, size)
        if size:
            self.decades = max(self.decades, abs(int(mpmath.mag(size)) * 3 // 10))


_CONSTANTS: Mapping[str, Callable[[], Number]] = {
    "e": lambda: +mpmath.e,
    "pi": lambda: +mpmath.pi,
    "i": lambda: mpmath.mpc(0, 1),
}


def _checked(limit: int, function: Callable[..., Number]) -> Callable[..., Number]:
    def call(*values: Number) -> Number:
        if any(abs(value) > limit for value in values):
            raise TooCostly("an argument too large for its function")
        return function(*values)

    return call


def _power(base: Number, exponent: Number) -> Number:
    if base == 0 and mpmath.re(exponent) <= 0:
        raise Undefined("0 to a power")
    if base and abs(exponent) * (abs(int(mpmath.mag(base))) + 1) > cost.LARGEST_ARGUMENT:
        raise TooCostly("a tower of powers")
    return mpmath.power(base, exponent)


def _root(radicand: Number, degree: Number) -> Number:
    whole = mpmath.isint(degree)
    if whole and int(degree) % 2 and mpmath.im(radicand) == 0 and mpmath.re(radicand) < 0:
        return -mpmath.root(-mpmath.re(radicand), int(degree))
    return mpmath.power(radicand, 1 / degree)


def _real_floor(value: Number) -> Number:
    """Refuses to round what stands so near a whole number that its digits cannot tell the side."""
    nearest = mpmath.nint(mpmath.re(value))
    if abs(value - nearest) < mpmath.mpf(10) ** (-mpmath.mp.dps // 2) * max(1, abs(nearest)):
        return nearest
    return mpmath.floor(value)


_SATURATING = frozenset({"tanh"})
_angle = cost.LARGEST_ANGLE
_NUMERIC: Mapping[str, Callable[..., Number]] = {
    "+": lambda *terms: sum(terms, mpmath.mpf(0)),
    "*": lambda *factors: mpmath.fprod(factors),
    "/": lambda above, below: above / below,
    "neg": lambda value: -value,
    "^": _power,
    "root": _checked(10**3000, _root),
    "!": _checked(cost.LARGEST_ARGUMENT, mpmath.factorial),
    "binom": _checked(10**9, mpmath.binomial),
    "abs": abs,
    "floor": _checked(10**1000, _real_floor),
    "ceil": _checked(10**1000, lambda value: -_real_floor(-value)),
    "degree": lambda value: value * mpmath.pi / 180,
    "log": lambda value, base: mpmath.log(value) / mpmath.log(base),
    "ln": mpmath.log,
    "exp": _checked(cost.LARGEST_ARGUMENT, mpmath.exp),
    **{name: _checked(_angle, getattr(mpmath, name)) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _checked(cost.LARGEST_ARGUMENT, getattr(mpmath, name)) for name in ("sinh", "cosh", "tanh")},
    **{
        alias + name: _checked(10**300, getattr(mpmath, "a" + name))
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "cot", "sec", "csc")
        for alias in (("arc", "a") if name in {"sin", "cos", "tan"} else ("arc",))
    },
}


def working_precision() -> AbstractContextManager[Any]:
    """The precision at which numbers are put in order and measured against tolerances."""
    return mpmath.workdps(COMPARED_DIGITS)


def real_number(node: Node, point: Mapping[str, Number] | None = None) -> Number:
    """The real part of the value of `node` at `point`, at the precision of the moment. Raises Undefined, TooCostly."""
    return mpmath.re(Evaluation(COMPARED_DIGITS, point or {}).value(node))


def variables(node: Node) -> frozenset[str]:
    """The names of all letters of `node` that are not constants, heads of applied functions aside."""
    if isinstance(node, Num):
        return frozenset()
    if isinstance(node, Sym):
        return frozenset() if node.name in _CONSTANTS or node.name == "infinity" else frozenset({node.name})
    arguments = node.args[1:] if node.op == "apply" else node.args
    return frozenset().union(*(variables(argument) for argument in arguments))


def _fixed_number(seed: str) -> Number:
    """A number in (1/2, 5/2) that depends on `seed` alone."""
    drawn = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    return mpmath.mpf(1) / 2 + 2 * mpmath.mpf(drawn) / (1 << 64)


def _places(stepped: bool) -> list[tuple[int, float]]:
    """Number and span of the points to compare at; span 0 stands for small whole coordinates."""
    places = list(enumerate(STEPPED_SPANS if stepped else SPANS))
    return places + [(number, 0) for number in range(WHOLE_POINTS)] if stepped else places


def sample_point(names: frozenset[str], number: int, span: float) -> dict[str, Number]:
    """The `number`-th point at which expressions are compared, coordinates about as large as `span`, some negative."""
    if span == 0:
        return {name: mpmath.mpf(1 + (number + place * (number + 1)) % 11) for place, name in enumerate(sorted(names))}
    point = {}
    for name in names:
        value = span * _fixed_number(f"{name}#{number}")
        negative = number % 2 and _fixed_number(f"{name}-{number}") < 2
        point[name] = -value if negative else value
    return point


def same_value(left: Node, right: Node) -> bool:
    """Whether two trees have the same value wherever both have one.

    Raises TooCostly when that cannot be told cheaply, Undefined when no point tells.
    """
    left_exact, right_exact = exact(left), exact(right)
    if left_exact is not None and right_exact is not None:
        return left_exact == right_exact
    names = variables(left) | variables(right)
    if not names:
        return _same_at(left, right, names, 0, 1)
    told = 0
    trouble: ValueError = Undefined("no point tells them apart or together")
    for number, span in _places(_is_stepped(left) or _is_stepped(right)):
        try:
            if not _same_at(left, right, names, number, span):
                return False
            told += 1
        except (Undefined, TooCostly) as error:
            trouble = error
    if told >= POINTS_NEEDED:
        return True
    if isinstance(trouble, OnlyOneReal):
        return False
    raise trouble


def _is_stepped(node: Node) -> bool:
    """Whether `node` may be the same as another over a wide range and differ beyond."""
    return isinstance(node, Call) and (node.op in STEPPED or any(_is_stepped(argument) for argument in node.args))


def _same_at(left: Node, right: Node, names: frozenset[str], number: int, span: float) -> bool:
    """Whether the two agree at one point. Raises Undefined when the point says nothing."""
    digits = FIRST_DIGITS
    for _ in range(2):
        with mpmath.workdps(digits):
            point = sample_point(names, number, span)
            first, second = Evaluation(digits, point), Evaluation(digits, point)
            left_value, right_value = first.value(left), second.value(right)
            scale = max(first.scale, second.scale)
            real = [_is_real(value, scale, digits) for value in (left_value, right_value)]
            if names and real[0] != real[1]:
                raise OnlyOneReal("only one side is real")
            if number % 2 and not any(real) and not (_has_imaginary(left) or _has_imaginary(right)):
                raise Undefined("branches of a real expression outside its domain")
            if abs(left_value - right_value) > scale * mpmath.mpf(10) ** (GUARD_DIGITS - digits):
                return False
            decades = max(first.decades, second.decades)
        digits = SPARE_DIGITS + 2 * decades
        if digits > cost.MOST_DIGITS:
            raise TooCostly("values too large or too small to be told apart")
    return True


def _has_imaginary(node: Node) -> bool:
    return node == Sym("i") or (isinstance(node, Call) and any(_has_imaginary(argument) for argument in node.args))


def _is_real(value: Number, scale: Number, digits: int) -> bool:
    return abs(mpmath.im(value)) <= scale * mpmath.mpf(10) ** (GUARD_DIGITS - digits)
