r"""What kind of thing an answer is: a number, several, a tuple, an interval, an equation, a matrix, a time, words.

`read_answer` takes normalised text. It raises Unreadable for mathematics outside the grammar (then math-verify is asked)
and returns Words for what is not mathematics: words are compared as words, never as products of letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from megatron_seirenes.verifier import cost
from megatron_seirenes.verifier.cost import TooCostly
from megatron_seirenes.verifier.expression import FUNCTIONS, Call, Node, Num, Sym, Unreadable, read_expression
from megatron_seirenes.verifier.units import Unit, measure
from megatron_seirenes.verifier.values import exact, variables


@dataclass(frozen=True, slots=True)
class Scalar:
    node: Node
    unit: Unit | None = None
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """Text; `mixed` when mathematics stands in it, which then counts as text, too."""

    text: str
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Ordered:
    """A tuple, vector, list or interval: `brackets` are as written, `<>` counts as `()`."""

    items: tuple[Answer, ...]
    brackets: str


@dataclass(frozen=True, slots=True)
class Several:
    """Answers in any order. `braces` when written as a set."""

    items: tuple[Answer, ...]
    braces: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval; None is infinite. A point is a closed interval from itself to itself."""

    low: Node | None
    low_closed: bool
    high: Node | None
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Region:
    """A union of intervals. `by_inequality` when it was written as one."""

    pieces: tuple[Piece, ...]
    by_inequality: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """`x = 5`, `f(x) = 2x`, `x \\in (0, 1)`, `Area = 5`."""

    name: str
    value: Answer


@dataclass(frozen=True, slots=True)
class Relation:
    """`left op right` with `op` one of `=`, `!=`, `>`, `>=`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day; `afternoon` None when am or pm is not said."""

    hour: int
    minute: int
    second: int
    afternoon: bool | None


@dataclass(frozen=True, slots=True)
class Ratio:
    parts: tuple[Node, ...]


Answer = Scalar | Words | Ordered | Several | Region | Named | Relation | Matrix | Clock | Ratio

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", re.ASCII)
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_WORDY = re.compile(r"[a-zA-Z][a-zA-Z'\-.\s]*\Z")
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")
_LONG_WORD = re.compile(r"(?<![\\a-zA-Z{])(?!(?:begin|end)\b)[a-zA-Z]{4,}")
_SHORT_WORDS = frozenset({"no", "yes", "ok"})
_NO_SOLUTION = frozenset({"no solution", "no solutions", "no real solution", "no real solutions", "empty set", "none"})
_NAMES = FUNCTIONS | {"sqrt", "pi", "log", "lg", "mod", "gcd", "lcm", "max", "min"}
_SEPARATOR = re.compile(r"[,;]|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])")
_RELATION = re.compile(r"<=|>=|!=|[<>=]|\\in(?![a-zA-Z])")
_UNION = re.compile(r"\\cup(?![a-zA-Z])")
_WITHOUT = re.compile(r"\\(?:setminus|backslash)(?![a-zA-Z])\s*|(?<=\})\\\s*(?=\\\{)")
_REALS = re.compile(r"\\mathbb\s*\{?\s*R\s*\}?|\\R\Z")
_OPENING = re.compile(r"\\\{|\\langle(?![a-zA-Z])|\\begin\s*\{|[(\[{]")
_BRACKET = re.compile(r"\\\{|\\\}|\\langle(?![a-zA-Z])|\\rangle(?![a-zA-Z])|[(\[{)\]}]")
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\s*\{(?P<kind>[pbB]?matrix|smallmatrix|array)\}\s*(?:\{[lcr|\s]*\})?(?P<rows>.*?)\\end\s*\{(?P=kind)\}\s*[)\]]?\Z",
    re.DOTALL,
)
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?\s*(?:\\text\s*\{)?\s*(?P<half>[apAP]\.?\s*[mM]\.?)?\s*\}?\Z",
    re.ASCII,
)
_BASED = re.compile(
    r"\(?\s*(?P<digits>\d[0-9A-Fa-f ]*)\)?\s*(?:_\s*\{?\s*(?:\\text\s*\{)?\s*(?P<base>\d{1,2}|[a-z]+)\s*\}?\s*\}?"
    r"|(?:\\text\s*\{)?\s*\(?\s*(?:in )?base[\s}]*(?P<spoken>\d{1,2}|[a-z]+)\s*\)?\}?)\Z",
    re.ASCII,
)
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16}
_NAME = re.compile(r"(?:\\?[a-zA-Z]+)(?:_(?:\{[^{}]*\}|\w))?'*(?:\s*\([^()=]*\))?\Z")
_INFINITY = Sym("infinity")


def readings(text: str) -> tuple[str, ...]:
    """`1,234` is a number first, and two answers when the other side holds several."""
    collapsed = _collapse_thousands(text)
    return (text,) if collapsed == text else (collapsed, text)


def _collapse_thousands(text: str) -> str:
    return _THOUSANDS.sub(lambda match: match[0].replace(",", "") if _depth(text, match.start()) == 0 else match[0], text)


def _depth(text: str, place: int) -> int:
    depth = 0
    for match in _BRACKET.finditer(text, 0, place):
        depth += 1 if _OPENING.match(match[0]) else -1
    return depth


def split_outside(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """The parts of `text` between separators outside all brackets, and those separators."""
    depth = start = 0
    parts, found = [], []
    for match in re.finditer(rf"(?P<bracket>{_BRACKET.pattern}|\\(?:begin|end)(?![a-zA-Z]))|{separator.pattern}", text):
        token = match["bracket"]
        if token is None:
            if depth == 0:
                parts.append(text[start : match.start()].strip())
                found.append(match[0])
                start = match.end()
        elif token == "\\begin" or (token != "\\end" and _OPENING.match(token)):
            depth += 1
        else:
            depth -= 1
    parts.append(text[start:].strip())
    if len(parts) > cost.MOST_ELEMENTS:
        raise TooCostly(f"more than {cost.MOST_ELEMENTS} elements")
    return parts, found


def read_answer(text: str, may_be_letter: bool = False, level: int = 0) -> Answer:
    """The answer that `text` writes. Raises Unreadable or TooCostly.

    `may_be_letter`: a bare single letter behind a number and a space may be its unit.
    """
    if level > 8:
        raise TooCostly("answers inside answers")
    text = text.strip()
    if not text:
        raise Unreadable("nothing")
    based = _based(text)
    if based is not None:
        return based
    clock = _clock(text)
    if clock is not None:
        return clock
    matrix = _MATRIX.match(text)
    if matrix:
        return _matrix(matrix["rows"], level)
    parts, separators = split_outside(text, _SEPARATOR)
    if separators:
        return _several([part for part in parts if part], separators, may_be_letter, level)
    words = _words(text)
    if words is not None:
        return words
    return _one(text, may_be_letter, level)


def _one(text: str, may_be_letter: bool, level: int) -> Answer:
    sides, operators = split_outside(text, _RELATION)
    if operators:
        return _relation(sides, operators, may_be_letter, level)
    region = _region(text, level)
    if region is not None:
        return region
    bracketed = _bracketed(text, level)
    if bracketed is not None:
        return bracketed
    if "\\pm" in text or "\\mp" in text:
        return _both_signs(text, may_be_letter, level)
    if ":" in text:
        return Ratio(tuple(read_expression(part) for part in text.split(":")))
    return _scalar(text, may_be_letter)


def _scalar(text: str, may_be_letter: bool) -> Scalar | Words:
    measured = measure(text, may_be_letter)
    if "\\text" in measured.text or _LONG_WORD.search(_TEXT.sub("", measured.text)):
        plain = _bare_names(measured.text)
        if plain is None:
            return Words(_folded(text), mixed=True)
    node = read_expression(measured.text)
    if measured.degrees:
        node = Call("degree", (node,))
    return Scalar(node, measured.unit, measured.percent)


def _bare_names(text: str) -> str | None:
    """`text` itself when all its words are names of functions, subscripts or identifiers in capitals; else None."""
    outside = re.sub(r"_\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "", text)
    for word in _TEXT.findall(outside):
        if len(word.strip()) > 1:
            return None
    words = _LONG_WORD.findall(_TEXT.sub("", outside))
    return text if all(word in _NAMES or word.isupper() for word in words) else None


def _folded(text: str) -> str:
    """The words of `text`, dress and spacing aside. Letters on their own keep their case."""
    plain = re.sub(r"[{}]", " ", _TEXT.sub(r" \1 ", text))
    plain = re.sub(r"[a-zA-Z]{2,}", lambda word: word[0].lower(), plain)
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(plain.split())).strip(" .")


def _words(text: str) -> Answer | None:
    """Words, when letters and spaces are all there is and they are no algebra."""
    plain = _TEXT.sub(r" \1 ", text).strip()
    if not _WORDY.match(plain):
        return None
    found = _WORD.findall(plain)
    dressed = any(len(word.strip()) > 1 for word in _TEXT.findall(text))
    spoken = [word for word in found if len(word) > 2 or word.lower() in _SHORT_WORDS]
    if any(word in _NAMES for word in found) or not (spoken or dressed):
        return None
    folded = _folded(text)
    if folded in _NO_SOLUTION:
        return Region(())
    if folded in {"infinity", "positive infinity"}:
        return Scalar(_INFINITY)
    return Words(folded)


def _several(parts: list[str], separators: list[str], may_be_letter: bool, level: int) -> Answer:
    items = [read_answer(part, may_be_letter, level + 1) for part in parts]
    if len(items) == 1:
        return items[0]
    if not items:
        raise Unreadable("only separators")
    names = {item.name for item in items if isinstance(item, Named)}
    values = [item.value if isinstance(item, Named) else item for item in items]
    if any(isinstance(value, Region) and value.by_inequality for value in values) and len(names) <= 1:
        return _joined(values, "or" not in separators)
    if len(names) == 1 and isinstance(items[0], Named):
        return Named(names.pop(), Several(tuple(values)))
    return Several(tuple(items))


def _joined(values: list[Answer], both: bool) -> Region:
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
    below = None if low == Call("neg", (_INFINITY,)) else low
    above = None if high == _INFINITY else high
    return Piece(below, low_closed and below is not None, above, high_closed and above is not None)


def _relation(sides: list[str], operators: list[str], may_be_letter: bool, level: int) -> Answer:
    if operators[0] == "\\in" and len(operators) == 1:
        return Named(_folded(sides[0]), _set_value(read_answer(sides[1], level=level + 1)))
    if set(operators) == {"="}:
        return _equation(sides, may_be_letter, level)
    if "=" in operators or "\\in" in operators:
        raise Unreadable("a chain of different relations")
    nodes = [read_expression(side) for side in sides]
    return _inequality(nodes, operators)


def _set_value(value: Answer) -> Answer:
    """What stands behind `\\in` is a set: a pair is an interval, braces list its elements."""
    if isinstance(value, Ordered) and len(value.items) == 2:
        return Region(as_pieces(value), True)
    return value


def _equation(sides: list[str], may_be_letter: bool, level: int) -> Answer:
    if not sides[-1]:
        raise Unreadable("nothing behind the equals sign")
    first, last = sides[0], sides[-1]
    if not first:
        return read_answer(last, may_be_letter, level + 1)
    if _names_something(first):
        return Named(_folded(first), read_answer(last, may_be_letter, level + 1))
    if first.startswith("(") and all(_NAME.match(part.strip()) for part in first.strip("()").split(",")):
        return read_answer(last, may_be_letter, level + 1)
    if _NAME.match(last) and len(sides) == 2 and not _words(last):
        flipped = read_answer(first, may_be_letter, level + 1)
        if isinstance(flipped, Scalar) and not variables(flipped.node):
            return Named(_folded(last), flipped)
    left, right = read_expression(first), read_expression(last)
    if not variables(left) and not variables(right):
        return read_answer(last, may_be_letter, level + 1)
    return Relation("=", left, right)


def _names_something(text: str) -> bool:
    """A letter, a function of letters, or words: what an answer is given as, rather than an equation's side."""
    if _words(text) is not None:
        return not text.isupper()
    return bool(_NAME.match(text)) and text.strip("\\") not in {"e", "pi", "i"} and _is_symbol(text)


def _is_symbol(text: str) -> bool:
    try:
        node = read_expression(text)
    except (Unreadable, TooCostly):
        return False
    return isinstance(node, Sym) or (isinstance(node, Call) and node.op == "apply")


def _inequality(nodes: list[Node], operators: list[str]) -> Answer:
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
        return Named(low.name, Region((_piece(Call("neg", (_INFINITY,)), False, high, closed),), True))
    if isinstance(high, Sym) and high.name not in variables(low) and variables(high):
        return Named(high.name, Region((_piece(low, closed, _INFINITY, False),), True))
    return Relation(">=" if closed else ">", high, low)


def _unequal(left: Node, right: Node) -> Answer:
    if isinstance(left, Sym) and left.name not in variables(right):
        return Named(left.name, Region((Piece(None, False, right, False), Piece(right, False, None, False)), True))
    return Relation("!=", left, right)


def _region(text: str, level: int) -> Region | None:
    """Unions of intervals and points, the real line with or without some points, the empty set."""
    if text in {"\\emptyset", "\\{\\}", "\\{ \\}"}:
        return Region(())
    parts, unions = split_outside(text, _UNION)
    if unions:
        return Region(tuple(piece for part in parts for piece in as_pieces(read_answer(part, level=level + 1))))
    reals = _REALS.match(text)
    if not reals:
        return None
    rest = text[reals.end() :].strip()
    if not rest:
        return Region((Piece(None, False, None, False),))
    without = _WITHOUT.match(rest) or re.match(r"\\|-", rest)
    if not without:
        raise Unreadable("something about the real line")
    holes = [piece.low for piece in as_pieces(read_answer(rest[without.end() :], level=level + 1)) if piece.low == piece.high]
    return _line_without([hole for hole in holes if hole is not None])


def _line_without(holes: list[Node]) -> Region:
    ordered = sorted(holes, key=lambda hole: exact(hole) or Fraction(0)) if all(exact(hole) is not None for hole in holes) else holes
    edges: list[Node | None] = [None, *ordered, None]
    return Region(tuple(Piece(low, False, high, False) for low, high in zip(edges, edges[1:], strict=False)))


def _bracketed(text: str, level: int) -> Answer | None:
    """`(a, b)`, `[a, b)`, `\\{a, b\\}`, `\\langle a, b \\rangle` around everything; None for brackets around one thing."""
    inner, brackets = _inside_brackets(text)
    if inner is None:
        return None
    parts, separators = split_outside(inner, _SEPARATOR)
    if brackets == "{}":
        items = [read_answer(part, level=level + 1) for part in parts if part]
        return Several(tuple(items), braces=True)
    if not separators:
        return read_answer(inner, level=level + 1) if brackets in {"()", "[]"} and _words(inner) else None
    if not all(parts):
        raise Unreadable("a missing element")
    return Ordered(tuple(read_answer(part, level=level + 1) for part in parts), brackets)


def _inside_brackets(text: str) -> tuple[str | None, str]:
    opening = _BRACKET.match(text)
    if opening is None or not _OPENING.match(opening[0]) or opening[0] == "{":
        return None, ""
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if _OPENING.match(match[0]) else -1
        if depth == 0:
            if match.end() != len(text):
                return None, ""
            marks = {"\\{": "{", "\\}": "}", "\\langle": "<", "\\rangle": ">"}
            brackets = marks.get(opening[0], opening[0]) + marks.get(match[0], match[0])
            return text[opening.end() : match.start()], "()" if brackets == "<>" else brackets
    return None, ""


def _both_signs(text: str, may_be_letter: bool, level: int) -> Answer:
    upper = text.replace("\\pm", "+").replace("\\mp", "-")
    lower = text.replace("\\pm", "-").replace("\\mp", "+")
    return Several((read_answer(upper, may_be_letter, level + 1), read_answer(lower, may_be_letter, level + 1)))


def _matrix(text: str, level: int) -> Matrix:
    rows = [row for row in text.split("\\\\") if row.strip() and row.strip() != "\\hline"]
    cells = tuple(tuple(read_answer(cell, level=level + 1) for cell in row.split("&")) for row in rows)
    if len({len(row) for row in cells}) != 1:
        raise Unreadable("rows of different lengths")
    return Matrix(cells)


def _clock(text: str) -> Clock | None:
    match = _CLOCK.match(text)
    if match is None or int(match["hour"]) > 24:
        return None
    half = (match["half"] or "").lower()[:1]
    return Clock(int(match["hour"]), int(match["minute"]), int(match["second"] or 0), None if not half else half == "p")


def _based(text: str) -> Answer | None:
    match = _BASED.match(text)
    if match is None:
        return None
    named = match["base"] or match["spoken"]
    base = int(named) if named.isdigit() else _BASES.get(named, 0)
    try:
        return Scalar(Num(Fraction(int(match["digits"].replace(" ", ""), base)), digits=1)) if 2 <= base <= 36 else Words(text, True)
    except ValueError:
        return Words(text, mixed=True)
