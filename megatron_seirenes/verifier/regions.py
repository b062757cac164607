r"""Sets of real numbers: intervals, points and their unions, and the inequalities that describe them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from megatron_seirenes.verifier.answers import Answer, Named, Ordered, Piece, Region, Relation, Scalar, Several
from megatron_seirenes.verifier.expression import Call, Node, Sym, Unreadable
from megatron_seirenes.verifier.values import exact, variables

INFINITY = Sym("infinity")

_INFINITY = Sym("infinity")


def as_pieces(value: Answer) -> tuple[Piece, ...]:
    """A number, several, an interval or a union as a union of intervals. Raises Unreadable for anything else."""
    if isinstance(value, Region):
        return value.pieces
    if isinstance(value, Scalar):
        return (Piece(value.node, True, value.node, True),)
    if isinstance(value, Several):
        return tuple(piece for item in value.items for piece in as_pieces(item))
    if isinstance(value, Named):
        return as_pieces(value.value)
    if isinstance(value, Ordered) and len(value.items) == 2 and value.brackets != "<>":
        low, high = (item.node if isinstance(item, Scalar) else None for item in value.items)
        if low is not None and high is not None:
            return (_piece(low, value.brackets[0] == "[", high, value.brackets[1] == "]"),)
    raise Unreadable("no set of numbers")


def _piece(low: Node, low_closed: bool, high: Node, high_closed: bool) -> Piece:
    below = None if low == Call("neg", (INFINITY,)) else low
    above = None if high == INFINITY else high
    return Piece(below, low_closed and below is not None, above, high_closed and above is not None)


def joined(values: list[Answer], both: bool) -> Region:
    """Inequalities: a pair of rays that meet, joined by a comma or `and`, is where both hold; all else is a union."""
    pieces = [piece for value in values for piece in as_pieces(value)]
    if both and len(pieces) == 2:
        below = [piece for piece in pieces if piece.low is None and piece.high is not None]
        above = [piece for piece in pieces if piece.high is None and piece.low is not None]
        if len(below) == len(above) == 1 and _not_below(below[0].high, above[0].low):
            return Region((Piece(above[0].low, above[0].low_closed, below[0].high, below[0].high_closed),), True)
    return Region(tuple(pieces), True)


def _not_below(high: Node | None, low: Node | None) -> bool:
    if high is None or low is None:
        return True
    above, below = exact(high), exact(low)
    return above is None or below is None or above >= below


def inequality(nodes: list[Node], operators: list[str]) -> Answer:
    if any(operator[0] == ">" for operator in operators) and any(operator[0] == "<" for operator in operators):
        raise Unreadable("a chain that goes up and down")
    if operators[0][0] == ">":
        nodes, operators = nodes[::-1], [operator.replace(">", "<") for operator in operators[::-1]]
    if operators == ["!="]:
        return _unequal(*nodes)
    if len(nodes) == 2:
        return _one_bound(nodes[0], nodes[1], operators[0])
    low, middle, high = nodes if len(nodes) == 3 else (None, None, None)
    if not isinstance(middle, Sym) or low is None or high is None or middle.name in variables(low) | variables(high):
        raise Unreadable("a chain of inequalities")
    return Named(middle.name, Region((_piece(low, operators[0] == "<=", high, operators[1] == "<="),), True))


def _one_bound(low: Node, high: Node, operator: str) -> Answer:
    closed = operator == "<="
    if isinstance(low, Sym) and low.name not in variables(high) and variables(low):
        return Named(low.name, Region((_piece(Call("neg", (INFINITY,)), False, high, closed),), True))
    if isinstance(high, Sym) and high.name not in variables(low) and variables(high):
        return Named(high.name, Region((_piece(low, closed, INFINITY, False),), True))
    return Relation(">=" if closed else ">", high, low)


def _unequal(left: Node, right: Node) -> Answer:
    if isinstance(left, Sym) and left.name not in variables(right):
        return Named(left.name, Region((Piece(None, False, right, False), Piece(right, False, None, False)), True))
    return Relation("!=", left, right)


def line_without(holes: list[Node]) -> Region:
    ordered = (
        sorted(holes, key=lambda hole: exact(hole) or Fraction(0))
        if all(exact(hole) is not None for hole in holes)
        else holes
    )
    edges: list[Node | None] = [None, *ordered, None]
    return Region(tuple(Piece(low, False, high, False) for low, high in pairwise(edges)))


def set_value(value: Answer) -> Answer:
    """What stands behind `\\in` is a set: a pair is an interval, braces list its elements."""
    if isinstance(value, Ordered) and len(value.items) == 2:
        return Region(as_pieces(value), True)
    return value
