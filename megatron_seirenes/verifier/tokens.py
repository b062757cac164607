r"""The words of the grammar of expressions: numerals, letters, commands and signs."""

from __future__ import annotations

import re
from dataclasses import dataclass


class Unreadable(ValueError):
    """The text is not in the grammar."""


FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh arcsinh arccosh arctanh ln exp".split()
)
GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega hbar ell odot "
    "aleph nabla Pi".split()
)
_BARE_NAMES = "|".join(sorted((*FUNCTIONS, "sqrt", "pi", "log"), key=len, reverse=True))
_TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    rf"|\\(?P<command>[a-zA-Z]+)|(?P<bare>(?:{_BARE_NAMES})(?![a-zA-Z]))"
    r"|(?P<word>[a-zA-Z]{4,})|(?P<letter>[a-zA-Z])|(?P<sign>[-+*/^_{}()\[\]|!°',])|(?P<space>\s+)|(?P<other>.)",
    re.ASCII | re.DOTALL,
)
_DRESSED_LETTER = re.compile(r"\\text\s*\{\s*([a-zA-Z])\s*\}")
_SUBSCRIPT_TEXT = re.compile(r"_\s*\{\s*\\text\s*\{\s*([^{}]*?)\s*\}\s*\}")
_D = r"(?:d|\\text\s*\{\s*d\s*\}|\\partial)"
_QUANTITY = r"\s*\\?[a-zA-Z]+(?:_\s*(?:\{[^{}]*\}|\w))?\s*"
_ORDER = r"\s*(?:\^\s*(?:\{\s*\d\s*\}|\d))?"
_DERIVATIVE = re.compile(rf"\\frac\s*\{{\s*({_D}{_ORDER}{_QUANTITY})\}}\s*\{{\s*({_D}{_QUANTITY}{_ORDER})\s*\}}")
_OTHER_DERIVATIVE = re.compile(rf"\\frac\s*\{{?\s*{_D}(?![a-zA-Z]{{3}})")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    after_space: bool


def tokens_of(text: str) -> list[Token]:
    r"""The tokens of `text`; `\frac{dx}{dt}` is one letter, and so is `x_{\text{red}}`. Raises Unreadable."""
    text = _DERIVATIVE.sub(lambda match: rf"\nabla_{{{re.sub(r'\W', '', match[1] + 'over' + match[2])}}} ", text)
    if _OTHER_DERIVATIVE.search(text):
        raise Unreadable("a derivative")
    text = _SUBSCRIPT_TEXT.sub(lambda match: "_{" + re.sub(r"\W", "", match[1]) + "}", text)
    return _tokens(_DRESSED_LETTER.sub(r" \1 ", text))


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind == "space":
            spaced = True
            continue
        if kind == "other":
            raise Unreadable(f"character {match[0]!r}")
        tokens.append(Token("command" if kind == "bare" else kind, match[kind], spaced))
        spaced = False
    return tokens
