"""Games with given hints: credit by asking, when guidance is given and what it shows, mastery."""

from __future__ import annotations

import pytest
from bundle_maker import BIRTH, PROBLEM, Making

from megatron_seirenes.errors import DataError
from megatron_seirenes.games.hint_file import read_hints
from megatron_seirenes.games.options import GameOptions
from megatron_seirenes.games.registry import build_game
from megatron_seirenes.records import Bundle, Problem

STAGES = {"R1": (2, None), "R3": (2, None)}
STATIC = build_game("static_hints", stages=STAGES, options=GameOptions(hints={"p7": ("h one", "h two")}))
COOPERATIVE = build_game("cooperative_hints", stages=STAGES, options=GameOptions(hint_share=0.5))


def bundle(clean, hinted=()):
    making = Making()
    for index, right in enumerate(clean):
        making.add("R1", (index,), right)
    for index, right in enumerate(hinted):
        making.add("R3", (index,), right)
    return Bundle(PROBLEM, 3, {stage: tuple(found) for stage, found in making.rollouts.items()}, making.verdicts)


def test_each_given_hint_is_asked_and_credited_by_itself():
    asks = STATIC.stage("R3").expand(None, PROBLEM)
    assert [ask.context for ask in asks] == [{"hint": "h one"}, {"hint": "h two"}]
    credit = STATIC.credit(bundle([True, False], [True, True, False, True]), BIRTH)
    assert [group.id for group in credit["clean"]] == ["3/p7/R1"]
    assert [group.id for group in credit["robust"]] == ["3/p7/R3/0", "3/p7/R3/1"]
    assert [group.has_signal for group in credit["robust"]] == [False, True]
    assert credit["robust"][1].rewards == (0.0, 1.0)


def test_a_part_of_an_asking_is_refused():
    with pytest.raises(ValueError, match="1 rollouts of R3 from R3/2 on, 2 expected"):
        STATIC.credit(bundle([True, False], [True, True, False]), BIRTH)


@pytest.mark.parametrize(
    ("clean", "hinted", "mastered"),
    [([1, 1], [1, 1], True), ([1, 1], [1, 0], False), ([1, 0], [1, 1], False), ([1, 1], [], None)],
)
def test_mastery_of_static_hints(clean, hinted, mastered):
    assert STATIC.mastered(bundle(map(bool, clean), map(bool, hinted))) is mastered


def test_guidance_is_wanted_when_every_clean_answer_is_wrong():
    when = COOPERATIVE.stage("R3").when
    assert [when(bundle(clean)) for clean in ([False, False], [True, False], [])] == [True, False, False]
    assert COOPERATIVE.mastered(bundle([True, True])) is True


@pytest.mark.parametrize(
    ("solution", "shown"),
    [("a b c d", ["a b"]), ("a b c", ["a"]), ("a b", ["a"]), ("a", []), ("", []), (None, [])],
)
def test_guidance_is_the_beginning_of_the_solution_and_never_all_of_it(solution, shown):
    problem = Problem("x", "?", "1", meta={} if solution is None else {"solution": solution})
    asks = COOPERATIVE.stage("R3").expand(None, problem)
    assert [ask.context["hint"] for ask in asks] == shown


def test_a_file_of_hints(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text(
        '{"problem_id": "a", "hint": "x"}\n\n{"problem_id": "a", "hints": ["y"]}\n{"problem_id": 3, "hints": []}\n'
    )
    assert read_hints(path) == {"a": ("x", "y"), "3": ()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"problem_id": "a"}', "line 1: expected an object"),
        ("[]", "line 1: expected an object"),
        ('{"problem_id": "a", "hints": "x"}', "line 1: hints must be texts"),
        ('{"problem_id": "a", "hint": " "}', "line 1: hints must be texts"),
        ('{"problem_id": "a", "hints": []}', "holds no hints"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "h.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_hints(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_hints(tmp_path / "absent")
