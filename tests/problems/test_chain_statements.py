import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_seirenes.problems.chain_statements import (
    Claim,
    Restatement,
    StepValue,
    boxed,
    make_hint,
    mistaken,
    parse_statements,
    work,
)
from megatron_seirenes.problems.chains import MODULUS, OPERANDS, OPERATIONS, Chain, ChainStep, draw_chain

CHAIN = Chain(9, (ChainStep("*", 5), ChainStep("-", 3), ChainStep("*", 4)))  # values 1 9 3

randoms = st.integers(0, 2**32).map(Random)
drawn_chains = randoms.map(lambda rng: draw_chain(rng, "train"))


def test_the_grammar():
    assert parse_statements("claim 10 b 7 a + 2", CHAIN) == (
        Claim(10),
        StepValue(1, 7),
        Restatement(0, ChainStep("+", 2)),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no statement"),
        ("  ", "no statement"),
        ("claim", "'nothing' is no value"),
        ("claim 11", "'11' is no value"),
        ("claim 03", "'03' is no value"),
        ("claim -1", "'-1' is no value"),
        ("claim 3 claim 3", "'claim' is said twice"),
        ("a 1 a 2", "'a' is said twice"),
        ("a 1 a + 2", "'a' is said twice"),
        ("d 1", "'d' is no label"),
        ("a", "'nothing' is no value"),
        ("a + 6", "'6' is no operand"),
        ("a +", "'nothing' is no operand"),
        ("a 1 2", "'2' is no label"),
        ("answer 3", "'answer' is no label"),
        ("\\boxed{ 3 }", "is no label"),
        ("a ٣", "is no value"),
        ("claim ²", "is no value"),
    ],
)
def test_malformed_hints_are_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_statements(text, CHAIN)


@given(drawn_chains, randoms, st.booleans(), st.sampled_from(["steps", "claim", "restatement"]))
def test_hints_are_well_formed_and_as_true_as_they_were_asked_to_be(chain, rng, true, kind):
    hint = make_hint(rng, chain, true, kind)
    statements = parse_statements(hint.text, chain)
    assert statements[-1].holds(chain) is true
    assert all(statement.holds(chain) for statement in statements) is true
    kinds = {"steps": StepValue, "claim": Claim, "restatement": Restatement}
    assert {type(statement) for statement in statements} == {kinds[kind]}


@given(drawn_chains, randoms, st.booleans())
def test_told_steps_come_in_order_with_one_mistake_carried_on(chain, rng, true):
    hint = make_hint(rng, chain, true, "steps")
    statements = parse_statements(hint.text, chain)
    assert [statement.index for statement in statements] == list(range(hint.steps_done))
    assert statements[-1].value == hint.believed_value
    told = [chain.start, *(statement.value for statement in statements)]
    slips = [step.apply(before) != after for step, before, after in zip(chain.steps, told, told[1:], strict=False)]
    assert sum(slips) == (0 if true else 1)


@given(drawn_chains, randoms)
def test_a_wrong_restatement_changes_one_part_of_one_step(chain, rng):
    hint = make_hint(rng, chain, False, "restatement")
    changed = [pair for pair in zip(chain.steps, hint.believed.steps, strict=True) if pair[0] != pair[1]]
    assert len(changed) == 1
    before, after = changed[0]
    assert (before.operation == after.operation) != (before.operand == after.operand)


@given(drawn_chains, randoms)
def test_work_without_mistakes_reaches_the_answer(chain, rng):
    lines, value = work(rng, chain)
    assert value == chain.answer
    assert [statement.value for statement in parse_statements(" ".join(lines), chain)] == list(chain.values)


@given(drawn_chains, randoms, st.integers(0, MODULUS - 1))
def test_work_goes_on_from_where_it_is_told(chain, rng, value):
    lines, end = work(rng, chain, first=2, value=value)
    assert len(lines) == len(chain.steps) - 2
    for step in chain.steps[2:]:
        value = step.apply(value)
    assert end == value


def test_work_with_mistakes_goes_wrong_at_the_given_rate():
    rng = Random(0)
    wrong = right = 0
    for _ in range(2000):
        chain = draw_chain(rng, "train")
        lines, _ = work(rng, chain, mistake_rate=0.1)
        before = chain.start
        for step, line in zip(chain.steps, lines, strict=True):
            after = int(line.split()[1])
            wrong, right = wrong + (step.apply(before) != after), right + (step.apply(before) == after)
            before = after
    assert 0.09 < wrong / (wrong + right) < 0.11


@given(randoms, st.integers(0, MODULUS - 1), st.sampled_from(OPERATIONS), st.sampled_from(OPERANDS))
def test_a_mistake_is_never_right(rng, value, operation, operand):
    step = ChainStep(operation, operand)
    assert mistaken(rng, value, step) in set(range(MODULUS)) - {step.apply(value)}


def test_the_end_of_an_answer():
    assert boxed(3) == "\\boxed{ 3 }"
