r"""Units, currencies, percent signs and scale words behind (or before) a number.

A known unit has dimensions and a factor, so that 1 m is 100 cm and never 1 cm. Other nouns (`18 apples`) say what is
counted and carry no meaning here. What may be a variable (a bare single letter) is taken for a unit only when it is set
in text or, where the other side asks for it, when a space stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of powers of base units, times `factor`."""

    dimensions: Dimensions
    factor: Fraction


@dataclass(frozen=True, slots=True)
class Measured:
    """The text of a number without what stood around it. `unit` is None when there was none that is known."""

    text: str
    unit: Unit | None = None
    percent: bool = False
    degrees: bool = False


def _table() -> dict[str, tuple[str, Fraction]]:
    rows = """
    length 1 m meter metre meters metres
    length 1/100 cm centimeter centimetre|length 1/1000 mm millimeter millimetre|length 1/10 dm decimeter decimetre
    length 1000 km kilometer kilometre|length 127/5000 in inch inche|length 381/1250 ft foot feet
    length 1143/1250 yd yard|length 201168/125 mi mile
    mass 1 g gram gm|mass 1/1000 mg milligram|mass 1000 kg kilogram kilo|mass 45359237/100000 lb pound
    mass 45359237/1600000 oz ounce|mass 1000000 tonne
    time 1 s sec second|time 1/1000 ms millisecond|time 60 min minute|time 3600 h hr hour|time 86400 day
    time 604800 week|month 1 month|month 12 yr year
    volume 1 L l liter litre|volume 1/1000 ml mL milliliter millilitre|gallon 1 gal gallon
    dollar 1 dollar usd USD buck|dollar 1/100 cent|euro 1 euro eur EUR|sterling 1 gbp GBP|yen 1 yen jpy JPY
    rupee 1 rupee rs Rs inr INR
    energy 1 J joule|energy 1000 kJ kilojoule|calorie 1 cal calorie|electronvolt 1 eV|electronvolt 1000 keV
    electronvolt 1000000 MeV|force 1 N newton|power 1 W watt|power 1000 kW kilowatt|pressure 1 Pa pascal
    pressure 1000 kPa|kelvin 1 K kelvin|celsius 1 celsius|fahrenheit 1 fahrenheit|volt 1 V volt|ampere 1 A amp ampere
    coulomb 1 C coulomb|ohm 1 ohm|hertz 1 Hz hertz|hertz 1000 kHz|hertz 1000000 MHz|mole 1 mol mole|molar 1 M
    angle 1 rad radian|bit 1 bit|byte 1 byte
    """
    table: dict[str, tuple[str, Fraction]] = {}
    for row in rows.replace("\n", "|").split("|"):
        if row.strip():
            dimension, factor, *names = row.split()
            table.update({name: (dimension, Fraction(factor)) for name in names})
    return table


_UNITS: Mapping[str, tuple[str, Fraction]] = _table()
_SPEEDS = {"mph": "mi / h", "kmh": "km / h", "kph": "km / h", "fps": "ft / s"}
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_CURRENCIES = {"¤": "dollar", "€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee"}
_NOT_NOUNS = frozenset(
    "and or not no non minus plus times over less more than if is are was where when with for some all otherwise mod "
    "modulo sin cos tan cot sec csc log ln exp sqrt pi max gcd lcm det base dozen half quarter third except "
    "without from to per square cubic sq cu between factorial squared cubed true false wrong halves thirds quarters "
    "fourths fifths sixths sevenths eighths ninths tenths hundredths thousandths below above".split()
)
_POWER_WORDS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_AFTER_POWER_WORDS = {"squared": 2, "cubed": 3}
_MOST_ATOMS = 8

_PERCENT = re.compile(
    r"^(?P<value>.*?[\d})\]])\s*(?:%|\\text\s*\{\s*(?:%|percent|per cent)\s*\}|percent|per cent)$", re.DOTALL
)
_CURRENCY = re.compile(
    r"^(?P<sign>[-+]?)\s*(?P<mark>[¤€£¥₹]|(?:USD|EUR|GBP|Rs\.?|US¤)(?![a-zA-Z]))\s*(?P<value>[-+]?[\d.(\\].*)$",
    re.DOTALL,
)
_CURRENCY_BEHIND = re.compile(r"^(?P<value>.*\d)\s*(?P<mark>[¤€£¥₹])$", re.DOTALL)
_ATOM = re.compile(
    r"(?P<space>\s*)(?:\\text\s*\{(?P<text>[^{}]*)\}|(?P<word>[a-zA-Z]+)\.?|(?P<slash>/)|(?P<dot>\*)"
    r"|\^\s*(?:\{\s*)?(?P<power>-?\d)\s*\}?|(?P<temperature>°\s*(?:[CF]|\\text\s*\{\s*[CF]\s*\})(?![a-zA-Z])))",
    re.ASCII,
)
_FIRST_ATOM = re.compile(
    r"(?:(?<=[\d)}\]!])|(?<=\\pi))\s*(?=\\text\s*\{|[a-zA-Z]|°\s*(?:[CF]|\\text))|(?<=[a-zA-Z])\s*(?=\\text\s*\{)",
    re.ASCII,
)
_NUMERIC = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot|binom)(?![a-zA-Z])|(?<=\d)[eE](?=[-+]?\d)|[^a-zA-Z\\])+\Z")
_DEGREES = re.compile(r"^(?P<value>.*[\d})\]])\s*(?:\\text\s*\{\s*)?(?:degrees?|deg)(?:\s*\})?$", re.DOTALL)


def measure(text: str, may_be_letter: bool) -> Measured:
    """Splits a normalised scalar into its number and what it measures. `may_be_letter` takes `18 m` for metres."""
    percent = _PERCENT.match(text)
    if percent:
        return Measured(percent["value"], percent=True)
    degrees = _DEGREES.match(text)
    if degrees:
        return Measured(degrees["value"], degrees=True)
    currency = _CURRENCY.match(text)
    if currency:
        mark = currency["mark"]
        inner = measure(currency["value"], False)
        return Measured(currency["sign"] + inner.text, _unit_named(_CURRENCIES.get(mark, mark.strip("."))))
    behind = _CURRENCY_BEHIND.match(text)
    if behind:
        return Measured(behind["value"], _unit_named(_CURRENCIES[behind["mark"]]))
    return _measure_words(text, may_be_letter)


def _unit_named(name: str) -> Unit:
    dimension, factor = _UNITS.get(name, ("dollar", Fraction(1)))
    return Unit(((dimension, 1),), factor)


def _measure_words(text: str, may_be_letter: bool) -> Measured:
    for start in _FIRST_ATOM.finditer(text):
        number = text[: start.start()]
        atoms = _atoms(text, start.start())
        if not atoms:
            continue
        if not _NUMERIC.match(number) and not all(atom.dressed and _known(atom.word) for atom in atoms):
            continue
        scaled, atoms = _scaled(number, atoms)
        if atoms and not _are_units(atoms, may_be_letter):
            return Measured(text)
        return Measured(scaled, _product(atoms))
    return Measured(text)


@dataclass(frozen=True, slots=True)
class _Atom:
    word: str
    power: int
    dressed: bool
    spaced: bool


def _atoms(text: str, place: int) -> list[_Atom] | None:
    """The words from `place` to the end with their powers, below a slash negative; None when there is anything else."""
    atoms: list[_Atom] = []
    sign = 1
    while place < len(text):
        match = _ATOM.match(text, place)
        if match is None or len(atoms) > _MOST_ATOMS:
            return None
        place = match.end()
        if match["power"]:
            if not atoms:
                return None
            last = atoms.pop()
            atoms.append(_Atom(last.word, last.power * int(match["power"]), last.dressed, last.spaced))
        elif match["slash"]:
            sign = -1
        elif match["temperature"]:
            atoms.append(_Atom("celsius" if "C" in match["temperature"] else "fahrenheit", sign, True, True))
        elif match["text"] is not None:
            sign = _dressed_atoms(match["text"], sign, atoms)
        elif match["word"]:
            behind_a_unit = bool(atoms) and text[match.start() - 1] in "/*"
            sign = _add_word(match["word"], sign, atoms, dressed=False, spaced=bool(match["space"]) or behind_a_unit)
    return atoms


def _dressed_atoms(text: str, sign: int, atoms: list[_Atom]) -> int:
    for piece in re.findall(r"[a-zA-Z]+|/|\^\s*-?\d|[^\sa-zA-Z/]+", text):
        if piece == "/":
            sign = -1
        elif piece.startswith("^") and atoms:
            last = atoms.pop()
            atoms.append(_Atom(last.word, last.power * int(piece[1:]), True, True))
        elif piece.isalpha():
            sign = _add_word(piece, sign, atoms, dressed=True, spaced=True)
        elif piece.strip(".,()*-"):
            atoms.append(_Atom("not", 1, True, True))
    return sign


def _add_word(word: str, sign: int, atoms: list[_Atom], dressed: bool, spaced: bool) -> int:
    if word == "per":
        return -1
    for part in _SPEEDS.get(word, word).split():
        if part == "/":
            sign = -1
        else:
            atoms.append(_Atom(part, sign, dressed, spaced))
    return sign


def _scaled(number: str, atoms: list[_Atom]) -> tuple[str, list[_Atom]]:
    """`5 million` as `5e6`."""
    if not atoms or atoms[0].word not in _SCALES:
        return number, atoms
    exponent = _SCALES[atoms[0].word]
    plain = re.fullmatch(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)", number.strip(), re.ASCII)
    return (f"{number.strip()}e{exponent}" if plain else f"({number})*10^{{{exponent}}}"), atoms[1:]


def _known(word: str) -> tuple[str, Fraction] | None:
    for name in (word, word.removesuffix("s"), word.lower(), word.lower().removesuffix("s")):
        if name in _UNITS and (len(name) > 1 or name == word):
            return _UNITS[name]
    return None


def _are_units(atoms: list[_Atom], may_be_letter: bool) -> bool:
    """Whether every word can be a unit or a noun rather than a letter of algebra, an operator or a negation."""
    for atom in atoms:
        if atom.word in _POWER_WORDS or atom.word in _AFTER_POWER_WORDS:
            continue
        if atom.word.lower() in _NOT_NOUNS:
            return False
        if len(atom.word) == 1 and not (_known(atom.word) and (atom.dressed or (may_be_letter and atom.spaced))):
            return False
        if atom.word == "of":
            continue
        if not atom.dressed and not _known(atom.word) and (len(atom.word) < 3 or not atom.word.islower()):
            return False
        if not atom.dressed and not atom.spaced and not _known(atom.word) and len(atom.word) < 4:
            return False
    return True


def _product(atoms: list[_Atom]) -> Unit | None:
    """The unit of all the words that are known ones; None when none is."""
    dimensions: dict[str, int] = {}
    factor = Fraction(1)
    pending = 1
    for number, atom in enumerate(atoms):
        if atom.word in _POWER_WORDS:
            pending = _POWER_WORDS[atom.word]
            continue
        known = _known(atom.word)
        if known is None:
            continue
        following = atoms[number + 1].word if number + 1 < len(atoms) else ""
        power = atom.power * pending * _AFTER_POWER_WORDS.get(following, 1)
        pending = 1
        dimensions[known[0]] = dimensions.get(known[0], 0) + power
        factor *= known[1] ** power
    kept = tuple(sorted((name, power) for name, power in dimensions.items() if power))
    return Unit(kept, factor) if kept else None
