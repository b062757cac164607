"""Hints of a policy for a file: refused ones are asked for again, the file is one that static_hints reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

import pytest
from scripted_policy import CHAT, BoxJudge, PlainRole, SeededEngine

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError
from megatron_seirenes.evaluation.asking import Policy
from megatron_seirenes.evaluation.hint_making import collect_hints, make_hints
from megatron_seirenes.records import Problem


@dataclass
class Picky(PlainRole):
    """Refuses hints that begin with a capital X."""

    def admit(self, text: str, problem: Problem) -> str | None:
        return "an X" if text.startswith("X") else None


def one_in_two(request) -> str:
    draw = Random(request.seed)
    return f"{'X' if draw.random() < 0.5 else 'h'}{draw.randrange(1000)}"


def policy(engine) -> Policy:
    return Policy(Config(), {"reasoner": PlainRole(), "adversary": Picky()}, engine, CHAT)


PROBLEMS = [Problem(f"q{i}", f"question {i}", "1") for i in range(12)]


def test_every_question_gets_its_hints_and_going_on_asks_nothing_twice(tmp_path):
    out = tmp_path / "h.jsonl"
    engine = SeededEngine(one_in_two)
    hints = collect_hints(policy(engine), BoxJudge(), PROBLEMS, out, 2, 12, "p")
    assert list(hints) == [problem.id for problem in PROBLEMS]
    assert all(len(found) == 2 and not any(hint.startswith("X") for hint in found) for found in hints.values())
    assert 24 < len(engine.asked) < 24 * 4
    again = SeededEngine(one_in_two)
    assert collect_hints(policy(again), BoxJudge(), PROBLEMS, out, 2, 12, "p") == hints
    assert again.asked == []


def test_a_question_may_keep_fewer(tmp_path):
    hints = collect_hints(policy(SeededEngine(lambda r: "X")), BoxJudge(), PROBLEMS, tmp_path / "h.jsonl", 2, 3, "p")
    assert set(map(len, hints.values())) == {0}
    rounds = sorted(path.name for path in tmp_path.glob("h-attempt-*.jsonl"))
    assert rounds == [f"h-attempt-{i}.jsonl" for i in range(3)]
    assert json.loads((tmp_path / rounds[0]).read_text().splitlines()[0])["refused"] == "an X"


def test_more_hints_than_attempts_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="1 to attempts is allowed"):
        make_hints(Config(), tmp_path / "h.jsonl", 3, 2)
