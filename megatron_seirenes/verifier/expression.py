r"""Reads a normalised mathematical expression into a small tree, or says that it cannot.

The grammar is the one answers are written in: numbers, letters with subscripts, `\frac`, roots, powers, factorials,
binomials, elementary functions, absolute values, floors, mixed numbers, implied multiplication, functions applied to a
single argument (`f(x)`, `I(0)`), derivatives of one letter by another (`\frac{dM}{dt}` counts as a letter of its own).
Anything else (sums, integrals, limits, modulus) is Unreadable, never guessed. Work and depth are bounded by
`cost.check_expression`.

A tree is made of Num, Sym and Call. `Call.op` is one of `+ * / ^ neg ! binom root abs floor ceil log apply degree`, or
the name of an elementary function. `apply` calls the function named by its first argument.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from megatron_seirenes.verifier.cost import check_expression, check_numeral
from megatron_seirenes.verifier.tokens import FUNCTIONS, GREEK, Token, Unreadable, tokens_of


@dataclass(frozen=True, slots=True)
class Num:
    """A numeral. `decimal` when it was written with a point or an exponent."""

    value: Fraction
    decimal: bool = False
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Sym:
    name: str


@dataclass(frozen=True, slots=True)
class Call:
    op: str
    args: tuple[Node, ...]


Node = Num | Sym | Call

_ACCENTS = frozenset("dot ddot hat bar tilde vec overline underline mathcal mathbb".split())
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_FUNCTION_LETTERS = frozenset("fgh")


def read_expression(text: str) -> Node:
    """The tree of `text` (normalised). Raises Unreadable, or TooCostly when reading it would not be cheap."""
    check_expression(text)
    reader = _Reader(tokens_of(text))
    node = reader.sum()
    reader.finish()
    return node


class _Reader:
    """Recursive descent, one method a level of precedence."""

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self._place = 0
        self._bars = 0

    # -- tokens

    def _peek(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._tokens[place].text if place < len(self._tokens) else ""

    def _kind(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._tokens[place].kind if place < len(self._tokens) else "end"

    def _next(self) -> str:
        if self._place >= len(self._tokens):
            raise Unreadable("it ends too early")
        self._place += 1
        return self._tokens[self._place - 1].text

    def _expect(self, text: str) -> None:
        if self._next() != text:
            raise Unreadable(f"{text!r} is missing")

    def finish(self) -> None:
        if self._place < len(self._tokens):
            raise Unreadable(f"{self._peek()!r} is left over")

    def _is_sign(self, text: str, ahead: int = 0) -> bool:
        return self._kind(ahead) == "sign" and self._peek(ahead) == text

    # -- levels

    def sum(self) -> Node:
        terms = [self._signed_product()]
        while self._kind() == "sign" and self._peek() in "+-":
            terms.append(self._signed_product())
        return terms[0] if len(terms) == 1 else Call("+", tuple(terms))

    def _signed_product(self) -> Node:
        negative = False
        while self._kind() == "sign" and self._peek() in "+-":
            negative ^= self._next() == "-"
        product = self._product()
        return Call("neg", (product,)) if negative else product

    def _product(self) -> Node:
        node = self._power()
        factors = [node]
        while True:
            if self._is_sign("*"):
                self._next()
                factors.append(self._signed_power())
            elif self._is_sign("/"):
                self._next()
                factors = [Call("/", (_product_of(factors), self._signed_power()))]
            elif self._begins_factor():
                if self._kind() == "number" and not self._may_follow_number(factors[-1]):
                    raise Unreadable("two numbers side by side")
                factors.append(self._power())
            else:
                return _product_of(factors)

    def _may_follow_number(self, before: Node) -> bool:
        return not isinstance(before, Num)

    def _signed_power(self) -> Node:
        if self._kind() == "sign" and self._peek() in "+-":
            sign = self._next()
            power = self._signed_power()
            return Call("neg", (power,)) if sign == "-" else power
        return self._power()

    def _begins_factor(self) -> bool:
        kind, text = self._kind(), self._peek()
        if kind in {"number", "letter", "word"}:
            return True
        if kind == "command":
            return text not in {"rfloor", "rceil", "rangle"}
        return kind == "sign" and (text in "({[" or (text == "|" and self._bars == 0))

    def _power(self) -> Node:
        base = self._postfix(self._primary())
        if not self._is_sign("^"):
            return base
        self._next()
        return self._postfix(Call("^", (base, self._script())))

    def _script(self) -> Node:
        if self._is_sign("{"):
            return self._group()
        if self._kind() == "sign" and self._peek() in "+-":
            return self._signed_power()
        if self._is_sign("("):
            return self._power()
        return self._single()

    def _postfix(self, node: Node) -> Node:
        while self._kind() == "sign" and self._peek() in "!°":
            if self._next() == "°":
                node = Call("degree", (node,))
            elif self._is_sign("!"):
                raise Unreadable("a double factorial")
            else:
                node = Call("!", (node,))
        return node

    def _group(self) -> Node:
        opening = self._next()
        bars, self._bars = self._bars, 0
        node = self.sum()
        self._bars = bars
        self._expect(_CLOSERS[opening])
        return node

    def _single(self) -> Node:
        """One token without braces; a numeral counts whole (`10^23`) unless what follows makes that unclear."""
        if self._kind() == "number":
            token = self._tokens[self._place]
            if len(token.text) > 1 and token.text.isdigit() and self._kind(1) in {"number", "letter"}:
                raise Unreadable("an unclear script")
            return self._number()
        if self._kind() == "letter":
            return Sym(self._next())
        return self._primary()

    def _primary(self) -> Node:
        kind, text = self._kind(), self._peek()
        if kind == "number":
            return self._maybe_mixed(self._number())
        if kind in {"letter", "word"}:
            return self._symbol(self._next())
        if kind == "command":
            return self._command(self._next())
        if kind == "sign" and text in "({[":
            return self._group()
        if kind == "sign" and text == "|":
            return self._absolute()
        raise Unreadable(f"{text!r} is not the beginning of anything")

    def _part(self) -> Node:
        r"""An argument of `\frac`: a group, or a single digit of a longer numeral as in `\frac12`."""
        token = self._tokens[self._place] if self._place < len(self._tokens) else None
        if token is None or token.kind != "number" or len(token.text) == 1:
            return self._script()
        if not token.text.isdigit():
            raise Unreadable("an unclear fraction")
        first, rest = (Token("number", text, False) for text in (token.text[0], token.text[1:]))
        self._tokens[self._place : self._place + 1] = [first, rest]
        return self._number()

    # -- leaves

    def _number(self) -> Num:
        text = self._next()
        check_numeral(text)
        mantissa = re.split("[eE]", text)[0]
        digits = len(mantissa.replace(".", "").lstrip("0"))
        plain = text.isdigit()
        return Num(
            Fraction(int(text)) if plain else Fraction(text.rstrip(".") if text.endswith(".") else text),
            not plain,
            digits,
        )

    def _maybe_mixed(self, whole: Num) -> Node:
        r"""`3\frac{1}{2}` and `3 1/2` are 7/2 when the fraction is a proper one of plain numerals."""
        if whole.decimal:
            return whole
        start = self._place
        fraction = self._plain_fraction()
        if fraction is not None and 0 < fraction < 1:
            return Num(whole.value + fraction)
        self._place = start
        return whole

    def _plain_fraction(self) -> Fraction | None:
        if self._kind() == "number" and self._is_sign("/", 1) and self._kind(2) == "number":
            above, _, below = self._next(), self._next(), self._next()
        elif self._kind() == "command" and self._peek() == "frac":
            self._next()
            above, below = self._plain_argument(), self._plain_argument()
        else:
            return None
        if not (above.isdigit() and below.isdigit()) or not int(below):
            return None
        return Fraction(int(above), int(below))

    def _plain_argument(self) -> str:
        if self._kind() == "number":
            digit = self._part()
            return str(digit.value) if isinstance(digit, Num) else ""
        if self._is_sign("{") and self._kind(1) == "number" and self._is_sign("}", 2):
            self._next()
            text = self._next()
            self._next()
            return text
        return ""

    def _symbol(self, name: str) -> Node:
        name += self._subscript()
        while self._is_sign("'"):
            name += self._next()
        if name in {"e", "i"}:
            return Sym(name)
        argument = self._argument(name)
        return Call("apply", (Sym(name), *argument)) if argument else Sym(name)

    def _subscript(self) -> str:
        if not self._is_sign("_"):
            return ""
        self._next()
        if not self._is_sign("{"):
            return "_" + self._next()
        depth, parts = 0, ["_"]
        while True:
            text = self._next()
            depth += (text == "{") - (text == "}")
            parts.append(text)
            if depth == 0:
                return "".join(part for part in parts if part not in "{}")

    def _argument(self, name: str) -> tuple[Node, ...]:
        """The arguments of a function letter: any for f, g, h; for others only single tokens, else it is a product."""
        if not self._is_sign("("):
            return ()
        simple = self._kind(1) in {"letter", "number"} or (self._kind(1) == "command" and self._peek(1) in GREEK)
        if name[0] not in _FUNCTION_LETTERS and not (simple and self._is_sign(")", 2)):
            return ()
        self._next()
        arguments = [self.sum()]
        while self._is_sign(","):
            self._next()
            arguments.append(self.sum())
        self._expect(")")
        return tuple(arguments)

    def _absolute(self) -> Node:
        self._expect("|")
        self._bars += 1
        node = self.sum()
        self._bars -= 1
        self._expect("|")
        return Call("abs", (node,))

    # -- commands

    def _command(self, name: str) -> Node:
        if name in FUNCTIONS:
            return self._function(name)
        if name in {"frac", "binom"}:
            return Call("/" if name == "frac" else name, (self._part(), self._part()))
        if name == "sqrt":
            return self._root()
        if name in {"log", "lg"}:
            return self._logarithm(name)
        if name in {"lfloor", "lceil"}:
            node = self.sum()
            self._expect_command("r" + name[1:])
            return Call(name[1:], (node,))
        if name == "pi":
            return Sym("pi")
        if name == "infty":
            return Sym("infinity")
        if name in GREEK:
            return self._symbol("\\" + name)
        if name in _ACCENTS:
            return self._symbol(f"\\{name}({self._accented()})")
        raise Unreadable(f"command \\{name}")

    def _expect_command(self, name: str) -> None:
        if self._kind() != "command" or self._next() != name:
            raise Unreadable(f"\\{name} is missing")

    def _accented(self) -> str:
        if not self._is_sign("{"):
            return self._next()
        self._next()
        text = self._next()
        self._expect("}")
        return text

    def _root(self) -> Node:
        degree: Node = Num(Fraction(2))
        if self._is_sign("["):
            degree = self._group()
        return Call("root", (self._script(), degree))

    def _logarithm(self, name: str) -> Node:
        base: Node = Num(Fraction(10)) if name == "lg" else Sym("e")
        if self._is_sign("_"):
            self._next()
            base = self._script()
        return Call("log", (self._function_argument(), base))

    def _function(self, name: str) -> Node:
        power: Node | None = None
        if self._is_sign("^"):
            self._next()
            power = self._script()
        argument = self._function_argument()
        if power == Call("neg", (Num(Fraction(1), digits=1),)):
            return Call("arc" + name, (argument,))
        node = Call(name, (argument,))
        return node if power is None else Call("^", (node, power))

    def _function_argument(self) -> Node:
        r"""`(...)`, `{...}`, or what is multiplied up to the next sign or function: `\sin 2\pi t`."""
        if self._kind() == "sign" and self._peek() in "([{":
            node = self._group()
            return Call("^", (node, self._power_of_argument())) if self._is_sign("^") else self._postfix(node)
        factors = [self._power()]
        while self._begins_factor() and not self._begins_function() and not self._is_sign("("):
            factors.append(self._power())
        return _product_of(factors)

    def _power_of_argument(self) -> Node:
        raise Unreadable("a power behind an argument")

    def _begins_function(self) -> bool:
        return self._kind() == "command" and (self._peek() in FUNCTIONS or self._peek() in {"log", "lg"})


def _product_of(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Call("*", tuple(factors))


__all__ = ["FUNCTIONS", "Call", "Node", "Num", "Sym", "Unreadable", "read_expression"]
