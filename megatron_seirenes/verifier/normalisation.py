r"""One spelling for what is written in many: the text of an answer before anything is parsed.

Unicode is folded into ASCII and LaTeX (full-width digits, CJK punctuation, minus signs, superscripts, vulgar fractions,
Greek), LaTeX loses its dress (sizes, spaces, fonts, alternative command names), thousands separators go. Meaning is
never touched: no unit, sign, word or operator is dropped here. Total and linear.
"""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋]+")
_VULGAR = re.compile("[¼-¾⅐-⅞↉]")

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi "
    "psi omega"
).split()
_GREEK_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split()


def _greek_characters() -> dict[int, str]:
    names = {ord(unicodedata.lookup(f"GREEK SMALL LETTER {_unicode_name(name)}")): f"\\{name} " for name in _GREEK}
    capitals = {
        ord(unicodedata.lookup(f"GREEK CAPITAL LETTER {_unicode_name(name.lower())}")): f"\\{name} "
        for name in _GREEK_CAPITALS
    }
    return names | capitals


def _unicode_name(name: str) -> str:
    return "LAMDA" if name == "lambda" else name.upper()


_CHARACTERS = str.maketrans(
    _greek_characters()
    | {ord(sign): "-" for sign in "−–—‐‑‒﹣－"}
    | {ord(sign): " \\cdot " for sign in "×·⋅∙•✕⨯"}
    | {ord(sign): "°" for sign in "º˚"}
    | {ord(sign): "'" for sign in "’‘′ʹ"}
    | {ord(sign): " " for sign in "\t\n\r\f\v"}
    | {
        ord("÷"): "/",
        ord("∕"): "/",
        ord("⁄"): "/",
        ord("√"): "\\sqrt ",
        ord("∛"): "\\sqrt[3] ",
        ord("∞"): "\\infty ",
        ord("≤"): "<=",
        ord("⩽"): "<=",
        ord("≦"): "<=",
        ord("≥"): ">=",
        ord("⩾"): ">=",
        ord("≧"): ">=",
        ord("≠"): "!=",
        ord("≈"): "\\approx ",
        ord("±"): "\\pm ",
        ord("∓"): "\\mp ",
        ord("∪"): "\\cup ",
        ord("∩"): "\\cap ",
        ord("∈"): "\\in ",
        ord("∅"): "\\emptyset ",
        ord("⌊"): "\\lfloor ",
        ord("⌋"): "\\rfloor ",
        ord("⌈"): "\\lceil ",
        ord("⌉"): "\\rceil ",
        ord("⟨"): "\\langle ",
        ord("⟩"): "\\rangle ",
        ord("ℝ"): "\\mathbb{R}",
        ord("ℤ"): "\\mathbb{Z}",
        ord("ℕ"): "\\mathbb{N}",
        ord("、"): ",",
        ord("。"): ".",
        ord("【"): "[",
        ord("】"): "]",
        ord("“"): '"',
        ord("”"): '"',
        ord("µ"): "\\mu ",
        ord("Ω"): "\\Omega ",
        ord("′"): "'",
        ord("″"): "''",
    }
)

_NOT_A_LETTER = r"(?![a-zA-Z])"


def _commands(names: str) -> str:
    return rf"\\(?:{names}){_NOT_A_LETTER}\s*"


_SEPARATED_THOUSANDS = re.compile(
    r"(?<![\d.,])\d{1,3}(?:(?:\{,\}|,?\s?\\[,!:; ]|~|['_ ])\d{3})+(?![\d'_])(?!\s?/)", re.ASCII
)

_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\s+", " "),
        (r"\\\\(?=(?:frac|dfrac|sqrt|pi|text|left|right|cdot|times|boxed)" + _NOT_A_LETTER + ")", r"\\"),
        (r"\\(?:left|right)\s*\.", ""),
        (_commands("left|right|middle|[bB]igg?[lrm]?"), ""),
        (_commands("displaystyle|textstyle|scriptstyle|limits|nolimits|boxed|fbox|ensuremath"), ""),
        (r"\\!", ""),
        (r"(?<!\\)\\[,;:> ]|~|" + _commands("quad|qquad|enspace|thinspace|medspace|space"), " "),
        (r"\\(?:hspace|vspace|hskip|label|tag)\*?\s*\{[^{}]*\}", " "),
        (_commands("dfrac|tfrac|cfrac|nicefrac|sfrac"), r"\\frac "),
        (_commands("dbinom|tbinom"), r"\\binom "),
        (r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}", r"\\binom{\1}{\2}"),
        (r"\\sqrt\s*\[\s*2\s*\]", r"\\sqrt "),
        (r"\\operatorname\*?\s*\{\s*([a-zA-Z]+)\s*\}", r"\\\1 "),
        (
            r"\\(?:mathrm|textrm|textbf|textit|textsf|mathit|mathsf|mathbf|mbox|hbox|boldsymbol|bm|rm|emph)\s*\{",
            r"\\text{",
        ),
        (r"\{\s*\\rm\s+([a-zA-Z]+)\s*\}", r"\\text{\1}"),
        (_commands("cdot|times|ast|bullet"), "*"),
        (_commands("div"), "/"),
        (_commands("underline|underbrace") + r"(?=\{)", ""),
        (r"^\s*\*\*(.*)\*\*\s*$", r"\1"),
        (r'^\s*"(.*)"\s*$', r"\1"),
        (r"(?:\\\\\s*)+$", ""),
        (r"\*\*", "^"),
        (_commands("leq|leqslant|leqq|le"), "<="),
        (_commands("geq|geqslant|geqq|ge"), ">="),
        (_commands("neq|ne"), "!="),
        (r"\\not\s*=", "!="),
        (_commands("lt"), "<"),
        (_commands("gt"), ">"),
        (_commands("approx|simeq|thickapprox|doteq|equiv") + r"(?!.*mod)", "="),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ" + _NOT_A_LETTER + "|" + _commands("degree|textdegree"), "°"),
        (r"\^\s*\{\s*((?:\\prime\s*)+)\}", r"\1"),
        (r"\^?\s*\\prime" + _NOT_A_LETTER, "'"),
        (r"\\%", "%"),
        (r"\\\$", "¤"),
        (_commands("lbrace"), r"\\{"),
        (_commands("rbrace"), r"\\}"),
        (_commands("lbrack"), "["),
        (_commands("rbrack"), "]"),
        (_commands("lparen"), "("),
        (_commands("rparen"), ")"),
        (_commands("lvert|rvert|vert|mid"), "|"),
        (_commands("ldots|dots|cdots|dotsc") + r"|\.\.\.", "…"),
        (_commands("varnothing"), r"\\emptyset "),
        (_commands("land|wedge"), " and "),
        (_commands("lor|vee"), " or "),
        (r"\\text\s*\{\s*(and|or)\s*\}", r" \1 "),
        (r"\bnp\.", ""),
        (r"\\(?=&)", ""),
        (r"\s+", " "),
    )
)

_CURRENCY_DOLLAR = re.compile(r"^\s*(-?)\$\s*(?=[\d.])([^$]*)$")
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_REPEATING = re.compile(
    r"(?<![\d.])(?P<whole>\d{1,50})\.(?P<first>\d{0,50})\\(?:overline|bar|dot)\s*\{\s*(?P<again>\d{1,50})\s*\}",
    re.ASCII,
)
_TRAILING = " .,;:"
_DRESSED = re.compile(r"\\text\s*\{([^{}]*)\}\Z")
_WORDS = re.compile(r"(?=.*[a-zA-Z]{2})[a-zA-Z'.\s-]*\Z")


def normalise(text: str) -> str:
    """The one spelling of `text`, which is the inside of a box or a gold."""
    text = _fold_unicode(text)
    text = _SEPARATED_THOUSANDS.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    text = _DECIMAL_COMMA.sub(".", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _REPEATING.sub(_spell_repeating_decimal, text)
    text = _CURRENCY_DOLLAR.sub(r"\1¤\2", text).replace("$", "")
    for opening in (r"\(", r"\)", r"\[", r"\]"):
        text = text.replace(opening, "")
    text = _without_outer_braces(text.strip(_TRAILING))
    dressed = _DRESSED.match(text)
    return dressed[1].strip(_TRAILING) if dressed and not _WORDS.match(dressed[1]) else text


def _fold_unicode(text: str) -> str:
    if text.isascii():
        return text.translate(_CHARACTERS)
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: "_{" + run[0].translate(_SUBSCRIPTS) + "}", text)
    text = _VULGAR.sub(_spell_vulgar_fraction, text).translate(_CHARACTERS)
    text = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
    return "".join(_fold_character(character) for character in text)


def _fold_character(character: str) -> str:
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    return "" if category == "Cf" else character


def _spell_vulgar_fraction(match: re.Match[str]) -> str:
    numerator, _, denominator = unicodedata.normalize("NFKC", match[0]).partition("⁄")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _spell_repeating_decimal(match: re.Match[str]) -> str:
    r"""`0.1\overline{6}` as the fraction it is."""
    first, again = match["first"], match["again"]
    above = int(match["whole"] + first + again) - int(match["whole"] + first)
    return rf"\frac{{{above}}}{{{(10 ** len(again) - 1) * 10 ** len(first)}}}"


def _without_outer_braces(text: str) -> str:
    """`{...}` around everything is dress, too; `{a}{b}` and sets `\\{...\\}` are left alone."""
    while text.startswith("{") and text.endswith("}"):
        depth = 0
        for place, character in enumerate(text):
            depth += (character == "{") - (character == "}")
            if depth == 0 and place < len(text) - 1:
                return text
        if text.endswith("\\}"):
            return text
        text = text[1:-1].strip(_TRAILING)
    return text
