r"""Whether two regions, equations or inequalities are the same."""

from __future__ import annotations

from functools import cmp_to_key

import mpmath

from megatron_seirenes.verifier.answers import Answer, Piece, Region, Relation, Several
from megatron_seirenes.verifier.expression import Call, Node, Num, Sym, Unreadable
from megatron_seirenes.verifier.regions import as_pieces
from megatron_seirenes.verifier.values import real_number, same_value, variables, working_precision


def same_region(gold: Answer, answer: Answer) -> bool:
    try:
        left, right = as_pieces(gold), as_pieces(answer)
    except Unreadable:
        return False
    if not _may_be_interval(gold, answer) or not _may_be_interval(answer, gold):
        return False
    pairs = _merged(left), _merged(right)
    return len(pairs[0]) == len(pairs[1]) and all(_same_piece(one, other) for one, other in zip(*pairs, strict=True))


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
    with working_precision():
        ordered = sorted(pieces, key=cmp_to_key(_by_low_end))
        merged: list[Piece] = []
        for piece in ordered:
            if merged and _touch(merged[-1], piece):
                merged[-1] = _join(merged[-1], piece)
            else:
                merged.append(piece)
    return merged


def _low(piece: Piece) -> mpmath.mpf:
    return mpmath.ninf if piece.low is None else real_number(piece.low)


def _high(piece: Piece) -> mpmath.mpf:
    return mpmath.inf if piece.high is None else real_number(piece.high)


def _compare(one: mpmath.mpf, other: mpmath.mpf) -> int:
    return (one > other) - (one < other)


def _by_low_end(one: Piece, other: Piece) -> int:
    return _compare(_low(one), _low(other))


def _touch(one: Piece, other: Piece) -> bool:
    high, low = _high(one), _low(other)
    return low < high or (low == high and (one.high_closed or other.low_closed))


def _join(one: Piece, other: Piece) -> Piece:
    low_closed = one.low_closed or (other.low_closed and _low(one) == _low(other))
    order = _compare(_high(one), _high(other))
    farther = one if order > 0 else other
    high_closed = farther.high_closed if order else one.high_closed or other.high_closed
    return Piece(one.low, low_closed, farther.high, high_closed)


def same_relation(gold: Answer, answer: Answer) -> bool:
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
    with working_precision():
        point = {name: mpmath.mpf(number + 2) / 7 for number, name in enumerate(names)}
        return real_number(quotient, point) > 0
