"""The attack against a real vLLM server: stopped by a signal, killed, gone on; counted before the server and by it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from interrupted_attack import in_three_goes
from loopback_endpoint import serve
from vllm_server import NAME, missing_packages, vllm_server

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.problems.readers import read_problems

pytestmark = pytest.mark.slow

QUESTIONS, SAMPLES, PARALLEL = 8, 3, 4
SOURCE = {"task": "chain_arithmetic", "split": "held_out", "count": QUESTIONS, "seed": 1}


def write_attack(folder: Path, base_url: str) -> Path:
    """An attack with hints from a file on held-out chains."""
    problems = read_problems(ProblemSource.model_validate(SOURCE))
    hints = ({"problem_id": problem.id, "hint": "claim 3"} for problem in problems)
    (folder / "hints.jsonl").write_text("".join(json.dumps(hint) + "\n" for hint in hints))
    endpoint = {"model": NAME, "base_url": base_url, "key_variable": None, "parallel": PARALLEL, "price_output": 1.0}
    endpoint |= {"max_tokens": 16, "temperature": 1.0}
    config = {
        "run": {"dir": str(folder / "run")},
        "roles": {"reasoner": {"prompt": "chains_reasoner"}},
        "evaluation": {
            "benchmarks": {"chains": {"problems": SOURCE}},
            "attack": {"endpoint": endpoint, "samples": SAMPLES, "hints": str(folder / "hints.jsonl")},
        },
    }
    path = folder / "attack.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.skipif(bool(missing_packages()), reason=f"vLLM's server needs: pip install {' '.join(missing_packages())}")
def test_every_request_is_sent_once_but_those_at_the_server_when_it_is_killed(tmp_path):
    with (
        vllm_server(tmp_path) as vllm,
        serve(lambda request: vllm.complete(json.dumps(request).encode())) as counting,
    ):
        config = write_attack(tmp_path, counting.base_url)
        cache = tmp_path / "run" / "attack" / "requests.jsonl"
        stop, kill, end = in_three_goes(config, cache, counting, stop_at=12, kill_at=30)
        answered = vllm.completions()
    wanted = Counter(dict.fromkeys(end.sent, SAMPLES))
    print(f"sent: {stop.sent.total()}, {kill.sent.total()}, {end.sent.total()}; lost: {kill.lost.total()}")
    assert len(wanted) == 2 * QUESTIONS
    assert 12 <= stop.sent.total() <= 12 + PARALLEL and not stop.lost
    assert 1 <= kill.lost.total() <= PARALLEL
    assert end.sent == wanted + kill.lost and end.kept == wanted
    assert answered == end.sent.total(), "as many as vLLM's own access log has"
    lines = [json.loads(line) for line in cache.read_text().splitlines()]
    drawn = sum(line["reply"]["completion_tokens"] for line in lines)
    stored = json.loads((tmp_path / "run" / "attack" / "attack.json").read_text())
    assert stored["spent"] == pytest.approx(drawn / 1e6) and drawn >= len(lines), "vLLM's own usage is what is counted"
    assert stored["benchmarks"]["chains"]["questions"] == QUESTIONS
