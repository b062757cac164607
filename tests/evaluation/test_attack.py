"""The attack as a user runs it, on an endpoint of the loopback address with hints from a file; stopped, gone on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from interrupted_attack import conversation, in_three_goes
from loopback_endpoint import Loopback, asked, serve

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError
from megatron_seirenes.evaluation.attack import attack
from megatron_seirenes.evaluation.attack_results import attack_markdown, attack_on, overall
from megatron_seirenes.evaluation.results import summarise

QUESTIONS, SAMPLES = 4, 3


def misled(request) -> str:
    """Right, unless the hint says eight and the question is an even one."""
    text = asked(request)
    even = int(text.split()[1]) % 2 == 0
    return f"so \\boxed{{{8 if even and 'eight' in text else 7}}}"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    rows = [{"id": n, "question": f"Question {n} ?", "answer": "7"} for n in range(QUESTIONS + 1)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    hints = [{"problem_id": f"q/{n}", "hint": "it is eight"} for n in range(QUESTIONS)]
    (tmp_path / "hints.jsonl").write_text("".join(json.dumps(row) + "\n" for row in hints))
    return tmp_path


def settings(world: Path, server: Loopback, **endpoint) -> dict:
    chosen = {"model": "m", "base_url": server.base_url, "key_variable": None, "price_input": 10.0} | endpoint
    return {
        "run": {"dir": str(world / "run")},
        "evaluation": {
            "benchmarks": {
                "q": {"problems": {"path": str(world / "q.jsonl")}},
                "perturbed": {"problems": {"path": "gone.jsonl"}, "distractors": {"kind": "column"}},
            },
            "attack": {"endpoint": chosen, "samples": SAMPLES, "hints": str(world / "hints.jsonl")},
        },
    }


def test_clean_hinted_and_their_difference(world, capsys):
    with serve(misled) as server:
        (result,) = attack(Config.model_validate(settings(world, server)))
        assert (result.clean, result.hinted) == (1.0, 0.5)
        assert result.change.mean == -0.5 and result.questions == QUESTIONS and result.left_out == 1
        assert len(server.requests) == 2 * QUESTIONS * SAMPLES
        hinted = [request for request in server.requests if "eight" in asked(request)]
        assert len(hinted) == QUESTIONS * SAMPLES
        assert hinted[0]["messages"][0]["role"] == "system", (
            "the Reasoner's own prompt is what the target is asked with"
        )
        attack(Config.model_validate(settings(world, server)))
        assert len(server.requests) == 2 * QUESTIONS * SAMPLES, "the second time everything stands in the cache"
    stored = json.loads((world / "run" / "attack" / "attack.json").read_text())
    assert stored["overall"] == {"clean": 1.0, "hinted": 0.5, "change": -0.5}
    assert stored["spent"] == pytest.approx(24 * 100 * 10 / 1e6)
    assert "| Δ, points | -50.0 (" in (world / "run" / "attack" / "attack.md").read_text()
    kept = (world / "run" / "attack" / "answers-hinted-q.jsonl").read_text().splitlines()
    assert len(kept) == QUESTIONS * SAMPLES and json.loads(kept[0])["hint"] == "it is eight"


def test_stopped_killed_and_gone_on_every_request_is_sent_once(world):
    """Once, but for the one that was at the server when the process was killed: nobody can know its answer."""
    with serve(misled) as server:
        (world / "attack.yaml").write_text(yaml.safe_dump(settings(world, server, parallel=1)))
        cache = world / "run" / "attack" / "requests.jsonl"
        stop, kill, end = in_three_goes(world / "attack.yaml", cache, server, stop_at=9, kill_at=17)
        held = conversation(server.requests[16])
    wanted = Counter(dict.fromkeys(end.sent, SAMPLES))
    assert len(wanted) == 2 * QUESTIONS
    assert stop.sent.total() == 9 and not stop.lost, "a stop waits for what is at the server"
    assert kill.sent.total() == 17 and kill.lost == Counter([held])
    assert end.sent == wanted + kill.lost and end.kept == wanted
    stored = json.loads((world / "run" / "attack" / "attack.json").read_text())
    assert stored["overall"]["change"] == -0.5
    assert stored["spent"] == pytest.approx(24 * 100 * 10 / 1e6)


def test_a_target_and_benchmarks_must_be_named(world):
    with pytest.raises(ConfigError) as caught:
        attack(Config.model_validate({"evaluation": {"attack": {}}}))
    assert "none without distractors is named" in str(caught.value)
    assert "give either target (a model folder) or endpoint" in str(caught.value)


def test_overall_is_the_mean_over_benchmarks():
    def result(name: str, clean: list[bool], hinted: list[bool]):
        def summary(marks: list[bool]):
            answers = {
                f"q/{n}": [{"sample": 0, "correct": mark, "extracted": "x", "truncated": False, "reason": "match"}]
                for n, mark in enumerate(marks)
            }
            return summarise(name, 1, answers, 0)

        return attack_on(summary(clean), summary(hinted), 0, 0)

    results = [result("large", [True] * 8, [True] * 4 + [False] * 4), result("small", [True, False], [True, False])]
    assert overall(results) == (0.75, 0.5, -0.25)
    assert "| avg@1 | large | small | Overall |" in attack_markdown(results, None)
    with pytest.raises(ValueError, match="different questions"):
        result("other", [True], [True, False])
