r"""Reads what kind of answer a normalised text is.

`read_answer` raises Unreadable for mathematics outside the grammar (then math-verify is asked) and returns Words for
what is not mathematics: words are compared as words, never as products of letters.
"""

from __future__ import annotations

import re
from fractions import Fraction

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
)
from megatron_seirenes.verifier.cost import TooCostly
from megatron_seirenes.verifier.expression import FUNCTIONS, Call, Num, Sym, Unreadable, read_expression
from megatron_seirenes.verifier.regions import INFINITY, as_pieces, inequality, joined, line_without, set_value
from megatron_seirenes.verifier.splitting import inside_brackets, split_outside
from megatron_seirenes.verifier.units import measure
from megatron_seirenes.verifier.values import variables

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
_MATRIX = re.compile(
    r"[(\[]?\s*\\begin\s*\{(?P<kind>[pbB]?matrix|smallmatrix|array)\}\s*(?:\{[lcr|\s]*\})?(?P<rows>.*?)\\end\s*\{(?P=kind)\}\s*[)\]]?\Z",
    re.DOTALL,
)
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?P<colon>:(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?)?"
    r"\s*(?:\\text\s*\{)?\s*(?P<half>[apAP]\.?\s*[mM]\.?)?\s*\}?\Z",
    re.ASCII,
)
_BASED = re.compile(
    r"\(?\s*(?P<digits>\d[0-9A-Fa-f ]*|[A-F][0-9A-F]+)\)?\s*"
    r"(?:_\s*\{?\s*(?:\\text\s*\{)?\s*(?P<base>\d{1,2}|[a-z]+)\s*\}?\s*\}?"
    r"|(?:\\text\s*\{)?\s*\(?\s*(?:in )?base[\s}]*(?P<spoken>\d{1,2}|[a-z]+)\s*\)?\}?)\Z",
    re.ASCII,
)
_BASES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
    "sixteen": 16,
}
_NAME = re.compile(r"(?:\\?[a-zA-Z]+)\s*(?:_\s*(?:\{[^{}]*\}|\w))?'*(?:\^\s*\{\s*-1\s*\})?(?:\s*\([^()=]*\))?\Z")
_INVERSE = re.compile(r"\^\s*\{\s*-1\s*\}")
_SET_BUILDER = re.compile(
    r"\s*(?P<name>\\?[a-zA-Z]+)\s*(?:\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*)?[|:](?P<condition>.*)\Z", re.DOTALL
)


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
    if not _is_wordless(measured.text):
        return Words(_folded(text), mixed=True)
    node = read_expression(measured.text)
    if measured.degrees:
        node = Call("degree", (node,))
    return Scalar(node, measured.unit, measured.percent)


def _is_wordless(text: str) -> bool:
    """Whether all words of `text` are names of functions, subscripts or identifiers in capitals."""
    outside = re.sub(r"_\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "", text)
    if any(len(word.strip()) > 1 for word in _TEXT.findall(outside)):
        return False
    words = _LONG_WORD.findall(_TEXT.sub("", outside))
    return all(word in _NAMES or word.isupper() for word in words)


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
        return Scalar(INFINITY)
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
        return joined(values, "or" not in separators)
    return Several(tuple(items))


def _relation(sides: list[str], operators: list[str], may_be_letter: bool, level: int) -> Answer:
    if operators[0] == "\\in" and len(operators) == 1:
        return Named(_name(sides[0]), set_value(read_answer(sides[1], level=level + 1)))
    if set(operators) == {"="}:
        return _equation(sides, may_be_letter, level)
    if "=" in operators or "\\in" in operators:
        raise Unreadable("a chain of different relations")
    nodes = [read_expression(side) for side in sides]
    return inequality(nodes, operators)


def _equation(sides: list[str], may_be_letter: bool, level: int) -> Answer:
    if not sides[-1]:
        raise Unreadable("nothing behind the equals sign")
    first, last = sides[0], sides[-1]
    if not first:
        return read_answer(last, may_be_letter, level + 1)
    if _names_something(first):
        return _named(_name(first), read_answer(last, may_be_letter, level + 1))
    if first.startswith("(") and all(_NAME.match(part.strip()) for part in first.strip("()").split(",")):
        return read_answer(last, may_be_letter, level + 1)
    if _NAME.match(last) and len(sides) == 2 and not _words(last):
        flipped = read_answer(first, may_be_letter, level + 1)
        if isinstance(flipped, Scalar) and not variables(flipped.node):
            return Named(_name(last), flipped)
    left, right = read_expression(first), read_expression(last)
    if not variables(left) and not variables(right):
        return read_answer(last, may_be_letter, level + 1)
    return Relation("=", left, right)


def _named(name: str, value: Answer) -> Answer:
    """`x = \\pm 2` names each of its answers."""
    if isinstance(value, Several) and not value.braces:
        return Several(tuple(Named(name, item) for item in value.items))
    return Named(name, value)


def _names_something(text: str) -> bool:
    """A letter, a function of letters, or words: what an answer is given as, rather than an equation's side."""
    if _words(text) is not None:
        return not text.isupper()
    if not _NAME.match(text) or text.strip("\\") in {"e", "pi", "i"}:
        return False
    try:
        node = read_expression(_INVERSE.sub("", text))
    except (Unreadable, TooCostly):
        return False
    return isinstance(node, Sym) or (isinstance(node, Call) and node.op == "apply")


def _name(text: str) -> str:
    """The one spelling of a name: `a_{n}` is `a_n`."""
    return re.sub(r"[{}\s]", "", _folded(text).replace("{", "").replace("}", ""))


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
    holes = [
        piece.low for piece in as_pieces(read_answer(rest[without.end() :], level=level + 1)) if piece.low == piece.high
    ]
    return line_without([hole for hole in holes if hole is not None])


def _bracketed(text: str, level: int) -> Answer | None:
    r"""`(a, b)`, `[a, b)`, `\{a, b\}`, `\langle a, b \rangle` around all; None for brackets around one thing."""
    inner, brackets = inside_brackets(text)
    if inner is None:
        return None
    builder = _SET_BUILDER.match(inner)
    if brackets == "{}" and builder:
        return read_answer(builder["condition"], level=level + 1)
    parts, separators = split_outside(inner, _SEPARATOR)
    if brackets == "{}":
        items = [read_answer(part, level=level + 1) for part in parts if part]
        return Several(tuple(items), braces=True)
    if not separators:
        return read_answer(inner, level=level + 1) if brackets in {"()", "[]"} and _words(inner) else None
    if not all(parts):
        raise Unreadable("a missing element")
    return Ordered(tuple(read_answer(part, level=level + 1) for part in parts), brackets)


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
    if match is None or int(match["hour"]) > 24 or not (match["colon"] or match["half"]):
        return None
    half = (match["half"] or "").lower()[:1]
    return Clock(
        int(match["hour"]), int(match["minute"] or 0), int(match["second"] or 0), None if not half else half == "p"
    )


def _based(text: str) -> Answer | None:
    match = _BASED.match(text)
    if match is None:
        return None
    named = match["base"] or match["spoken"]
    base = int(named) if named.isdigit() else _BASES.get(named, 0)
    if base != 16 and not match["digits"][0].isdigit():
        return None
    try:
        return (
            Scalar(Num(Fraction(int(match["digits"].replace(" ", ""), base)), digits=1))
            if 2 <= base <= 36
            else Words(text, True)
        )
    except ValueError:
        return Words(text, mixed=True)
