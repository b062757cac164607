"""Duplicates and overlaps: what counts as the same question, against brute force and by invariants."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.problems.duplicates import (
    exact_duplicates,
    near_duplicates,
    overlaps,
    tokens,
    words,
)
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.records import Problem


def pool(*questions: str, answers: str | None = None) -> list[Problem]:
    return [Problem(f"p{n}", q, answers[n] if answers else "1") for n, q in enumerate(questions)]


def same(one: str, other: str) -> bool:
    return one == other


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Find $x^2$ .", "find  x^2", True),
        ("Find \\left( a, b \\right)", "Find ( a,\\, b )", True),
        ("What is \uff11 + 1?", "What is 1+1", True),
        ("x + 1", "x - 1", False),
        ("x_1", "x 1", False),
        ("add 10", "add 100", False),
    ],
)
def test_tokens(one, other, equal):
    assert (tokens(one) == tokens(other)) is equal


def test_exact_duplicates_keep_the_first_and_conflicts_go_whole():
    problems = pool("Add 1 and 2.", "add $1$ and $2$", "Take 3.", "take 3", "Take 3", answers="33567")
    assert [(r.problem_id, r.reason, r.other) for r in exact_duplicates(problems, same)] == [
        ("p1", "exact duplicate", "p0"),
        ("p2", "conflicting answers", "p2"),
        ("p3", "conflicting answers", "p2"),
        ("p4", "conflicting answers", "p2"),
    ]


STORY = "Ann has 12 apples and gives 5 of them to her brother Tom who then eats two of those on his way back home"


def test_near_duplicates_have_the_same_numbers():
    problems = pool(
        STORY, STORY.replace("brother", "cousin"), STORY.replace("12", "13"), "Another 12 questions, 5 long"
    )
    assert [(r.problem_id, r.reason, r.other) for r in near_duplicates(problems, 0.7)] == [
        ("p1", "near duplicate", "p0")
    ]
    assert near_duplicates(problems, 0.95) == []


def jaccard(one: str, other: str) -> float:
    def triples(text: str) -> set[tuple[str, ...]]:
        found = tokens(text)
        return {tuple(found[n : n + 3]) for n in range(max(1, len(found) - 2))}

    return len(triples(one) & triples(other)) / len(triples(one) | triples(other))


def test_near_duplicates_against_brute_force():
    """Stories with some words exchanged; the hashed search finds what comparing all pairs finds."""
    draw = Random(0)
    names = [f"word{n}" for n in range(200)]
    stories = [[draw.choice(names) for _ in range(40)] for _ in range(60)]
    for story in list(stories):
        changed = list(story)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(40)] = draw.choice(names)
        stories.append(changed)
    problems = pool(*(" ".join(story) for story in stories))
    kept: list[Problem] = []
    expected = set()
    for problem in problems:
        if any(jaccard(problem.question, other.question) >= 0.8 for other in kept):
            expected.add(problem.id)
        else:
            kept.append(problem)
    numbers_off = [Problem(p.id, p.question.replace("word", "w"), "1") for p in problems]
    assert {r.problem_id for r in near_duplicates(numbers_off, 0.8)} <= {f"p{n}" for n in range(60, 120)}
    found = {r.problem_id for r in near_duplicates([Problem(p.id, letters(p.question), "1") for p in problems], 0.8)}
    assert expected and found == expected


def letters(text: str) -> str:
    """The same words without digits, so that numbers decide nothing."""
    return text.translate(str.maketrans("0123456789", "abcdefghij"))


def test_overlap_names_the_benchmarks_question():
    asked = "one two three four five six seven eight"
    benchmarks = {"b": [Problem("b/1", asked, "1"), Problem("b/2", "short one", "1")]}
    problems = pool(f"zero {asked} nine", "three four five six", "Short one!", "a short one more", "three four five")
    found = overlaps(problems, benchmarks, 4)
    assert [(r.problem_id, r.reason, r.other, r.benchmark) for r in found] == [
        ("p0", "overlap", "b/1", "b"),
        ("p1", "overlap", "b/1", "b"),
        ("p2", "overlap", "b/2", "b"),
    ]


def test_phrases_of_several_benchmark_questions_are_no_overlap():
    phrase = "where m and n are relatively prime positive integers find m plus n"
    questions = [Problem("b/1", f"A circle of radius two {phrase}", "1"), Problem("b/2", f"Seven dice {phrase}", "1")]
    twice = {"b": questions, "again": [Problem("again/1", questions[0].question, "1")]}
    assert overlaps(pool(f"Nine cards {phrase}"), twice, 6) == []
    assert [r.other for r in overlaps(pool(f"Draw a circle of radius two {phrase}"), twice, 6)] == ["b/1"]


@settings(max_examples=40)
@given(st.lists(st.text(alphabet="ab 1+", min_size=1, max_size=12), min_size=1, max_size=8))
def test_what_is_kept_has_no_duplicates_left(questions):
    problems = pool(*questions)
    gone = {r.problem_id for r in exact_duplicates(problems, same)}
    kept = [problem for problem in problems if problem.id not in gone]
    assert len({tuple(tokens(p.question)) for p in kept}) == len(kept) > 0
    assert exact_duplicates(kept, same) == []
    gone = {r.problem_id for r in near_duplicates(kept, 0.8)}
    assert near_duplicates([problem for problem in kept if problem.id not in gone], 0.8) == []


def test_real_files_hold_few_duplicates(shared_data):
    """GSM8K's training questions: what is called a duplicate can be read and is one."""
    problems = read_problems(ProblemSource(path=str(shared_data / "gsm8k-train.jsonl"), format="gsm8k", count=2000))
    assert len(exact_duplicates(problems, same)) <= 2
    assert len(near_duplicates(problems, 0.8)) <= 10
    test = read_problems(ProblemSource(path=str(shared_data / "gsm8k-test.jsonl"), format="gsm8k"))
    assert len(overlaps(problems, {"test": test}, 13)) <= 40
    both = overlaps(test[:50], {"test": test}, 13)
    assert len(both) >= 49, "a benchmark overlaps with itself"
    assert words("It's 1+1.") == ["it", "s", "1", "1"]
