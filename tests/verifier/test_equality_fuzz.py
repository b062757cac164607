r"""Random mathematics against exact arithmetic: equal forms of one value are accepted, different values never.

The forms are made here from a value that is known exactly, so the reference is `fractions.Fraction` and Python's own
comparison of intervals, not the judge's reading.
"""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.verifier.decision import decide
from megatron_seirenes.verifier.options import Options

OPTIONS = Options()
MODEST = settings(max_examples=120, deadline=None, derandomize=True)

rationals = st.builds(Fraction, st.integers(-(10**6), 10**6), st.integers(1, 10**4)) | st.builds(
    Fraction, st.integers(-(10**40), 10**40)
)


def judged(gold, answer):
    return decide(gold, answer, OPTIONS) == "match"


def finite_decimal(value):
    """The digits of `value` with a point, or None when they never end."""
    for places in range(1, 60):
        if (value * 10**places).denominator == 1:
            digits = f"{abs(value.numerator) * 10**places // value.denominator:0{places + 1}d}"
            return ("-" if value < 0 else "") + digits[:-places] + "." + digits[-places:]
    return None


@st.composite
def forms(draw, value):
    """One of the ways to write a rational number."""
    above, below = value.numerator, value.denominator
    factor = draw(st.integers(2, 9))
    ways = [
        f"{above}/{below}",
        rf"\frac{{{above}}}{{{below}}}",
        rf"\dfrac{{{above * factor}}}{{{below * factor}}}",
        rf"-\frac{{{-above}}}{{{below}}}",
        rf"\frac{{{-above}}}{{{-below}}}",
        rf"x = \frac{{{above}}}{{{below}}}",
        rf"\left( {above}/{below} \right)",
        rf"${above} / {below}$",
        rf"\frac{{{above}}}{{{below}}} \text{{ cm}}",
    ]
    if below == 1:
        ways += [str(above), f"{above:,}", f"{above:,}".replace(",", r"\,"), f"{above}.0", f"{above}."]
        ways += [str(above).replace("-", "−"), "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in str(above))]
    decimal = finite_decimal(value)
    if decimal is not None:
        ways += [
            decimal,
            decimal + "00",
            f"{decimal}e0",
            rf"{decimal} \times 10^{{0}}",
            finite_decimal(value * 100) + r"\%",
        ]
    whole, rest = divmod(abs(value), 1)
    if whole and rest:
        sign = "-" if value < 0 else ""
        ways.append(rf"{sign}{whole}\frac{{{rest.numerator}}}{{{rest.denominator}}}")
    return draw(st.sampled_from(ways))


@MODEST
@given(st.data())
def test_two_forms_of_one_number_are_the_same(data):
    value = data.draw(rationals)
    gold, answer = data.draw(forms(value)), data.draw(forms(value))
    assert judged(gold, answer), (gold, answer)


@MODEST
@given(st.data())
def test_forms_of_different_numbers_are_not(data):
    value = data.draw(rationals)
    change = data.draw(st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(1, 10**30), -value * 2, value * 9]))
    other = value + change
    if other == value:
        return
    gold, answer = data.draw(forms(value)), data.draw(forms(other))
    assert not judged(gold, answer), (gold, answer)


@st.composite
def arithmetic(draw, depth=3):
    """An expression with its exact value; a division by zero gives none."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(0, 30))
        return str(number), Fraction(number)
    left, one = draw(arithmetic(depth=depth - 1))
    right, other = draw(arithmetic(depth=depth - 1))
    kind = draw(st.sampled_from("+-*/^!|"))
    if one is None or other is None:
        return "0", None
    match kind:
        case "+":
            return f"({left} + {right})", one + other
        case "-":
            return f"({left} - {right})", one - other
        case "*":
            return rf"({left}) \cdot ({right})", one * other
        case "/":
            return rf"\frac{{{left}}}{{{right}}}", one / other if other else None
        case "^":
            exponent = draw(st.integers(-3, 5))
            return f"({left})^{{{exponent}}}", one**exponent if one or exponent > 0 else None
        case "|":
            return f"|{left}|", abs(one)
        case _:
            small = draw(st.integers(0, 12))
            factorial = 1
            for number in range(2, small + 1):
                factorial *= number
            return f"({left} + {small}!)", one + factorial


@MODEST
@given(arithmetic(), st.integers(-3, 3))
def test_arithmetic_agrees_with_exact_rationals(pair, shift):
    gold, value = pair
    if value is None:
        assert not judged(gold, "1")
        return
    answer = value + Fraction(shift, 7)
    written = f"{answer.numerator}/{answer.denominator}"
    assert judged(f"{gold} + 0", written) == (shift == 0), (gold, written)


numbers = st.integers(-9, 9)


@st.composite
def intervals(draw):
    low, high = sorted(draw(st.tuples(numbers, numbers).filter(lambda ends: ends[0] != ends[1])))
    return low, draw(st.booleans()), high, draw(st.booleans())


def as_interval(interval):
    low, low_closed, high, high_closed = interval
    return f"{'[' if low_closed else '('}{low}, {high}{']' if high_closed else ')'}"


def as_inequality(interval):
    low, low_closed, high, high_closed = interval
    return rf"{low} {r'\le' if low_closed else '<'} x {r'\leq' if high_closed else '<'} {high}"


def as_flipped_inequality(interval):
    low, low_closed, high, high_closed = interval
    return rf"{high} {r'\ge' if high_closed else '>'} x {'>=' if low_closed else '>'} {low}"


WRITINGS = st.sampled_from(
    [as_interval, as_inequality, as_flipped_inequality, lambda interval: rf"x \in {as_interval(interval)}"]
)


@MODEST
@given(intervals(), intervals(), WRITINGS, WRITINGS)
def test_intervals_agree_with_their_ends(one, other, write, write_other):
    assert judged(write(one), write_other(one))
    assert judged(write(one), write_other(other)) == (one == other)


@MODEST
@given(st.lists(numbers, min_size=2, max_size=6), st.randoms(use_true_random=False), st.booleans())
def test_several_answers_in_any_order(values, random, changed):
    shuffled = list(values)
    random.shuffle(shuffled)
    if changed:
        shuffled[0] += 1
    answer = r" \text{ and } ".join(map(str, shuffled)) if random.random() < 0.5 else ", ".join(map(str, shuffled))
    assert judged(", ".join(map(str, values)), answer) == (sorted(values) == sorted(shuffled))


@MODEST
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(-4, 4),
    st.integers(0, 2),
)
def test_polynomials_factored_and_expanded(terms, root, extra):
    """(x - r) p(x), written as a product and as the sum of its terms."""
    coefficients = [0] * 7
    for coefficient, power in terms:
        coefficients[power] += coefficient
    expanded = [0] * 8
    for power, coefficient in enumerate(coefficients):
        expanded[power + 1] += coefficient
        expanded[power] -= root * coefficient
    expanded[0] += extra
    total = " + ".join(f"({coefficient})x^{{{power}}}" for power, coefficient in enumerate(expanded))
    product = f"(x - ({root}))(" + " + ".join(f"({c})x^{{{p}}}" for c, p in terms) + ")"
    assert judged(total, product) == (extra == 0)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.text(max_size=60) | st.text(alphabet=r"\{}()[]^_$%,;:=<>|!°'./-+*0123456789xabeEi ", max_size=60),
    st.text(max_size=20),
)
def test_any_text_gets_a_verdict(answer, gold):
    assert decide(gold, answer, OPTIONS) in {"match", "mismatch", "unparsable"}
    assert decide("18", answer, OPTIONS) in {"match", "mismatch", "unparsable"}
