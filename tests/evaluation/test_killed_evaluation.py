"""`seirenes evaluate` with its real engine, killed and gone on: the same bytes, no finished question rolled twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from tiny_policy import make_policy

pytestmark = [pytest.mark.slow, pytest.mark.faults]

QUESTIONS, SAMPLES, AT_A_TIME = 60, 4, 8
PATIENCE = 300.0
PROGRAM = Path(__file__).with_name("counted_command.py")


def write_config(folder: Path) -> Path:
    config = {
        "model": {"path": str(make_policy(folder / "policy")), "dtype": "float32"},
        "rollout": {"max_prompt_tokens": 64, "max_sequences": AT_A_TIME, "kv_cache_bytes": 1 << 24},
        "game": {"stages": {stage: {"max_tokens": 24} for stage in ("R1", "R2", "R3")}},
        "roles": {"reasoner": {"prompt": "chains_reasoner"}, "adversary": {"prompt": "chains_adversary"}},
        "evaluation": {
            "benchmarks": {
                "chains": {
                    "samples": SAMPLES,
                    "problems": {"task": "chain_arithmetic", "split": "held_out", "count": QUESTIONS},
                }
            }
        },
    }
    path = folder / "evaluate.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def start(config: Path, run: Path, ledger: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(PROGRAM), str(ledger), "evaluate", str(config), f"run.dir={run}"]
    with run.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def lines(path: Path) -> list[dict]:
    """The lines that are whole."""
    content = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def asked(ledger: Path, process: subprocess.Popen[bytes]) -> Counter[str]:
    """How often this process asked each question: ids of requests are step/file/question/stage.sample."""
    requests = (
        line["request"] for line in lines(ledger) if line["event"] == "asked" and line["process"] == process.pid
    )
    return Counter(request.partition("/")[2].rpartition("/")[0] for request in requests)


def test_killed_in_the_middle_and_gone_on(tmp_path):
    config = write_config(tmp_path)
    whole = start(config, tmp_path / "whole", tmp_path / "whole.ledger")
    assert whole.wait(PATIENCE) == 0, (tmp_path / "whole.log").read_text()[-3000:]
    assert asked(tmp_path / "whole.ledger", whole).total() == QUESTIONS * SAMPLES

    run, ledger = tmp_path / "killed", tmp_path / "killed.ledger"
    answers = run / "evaluation" / "answers-chains.jsonl"
    first = start(config, run, ledger)
    while len(lines(answers)) < QUESTIONS and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL, (tmp_path / "killed.log").read_text()[-3000:]
    kept = Counter(line["problem_id"] for line in lines(answers))
    done = {question for question, count in kept.items() if count == SAMPLES}
    assert 0 < len(done) < QUESTIONS

    second = start(config, run, ledger)
    assert second.wait(PATIENCE) == 0, (tmp_path / "killed.log").read_text()[-3000:]
    again = asked(ledger, second)
    assert len(again) == QUESTIONS - len(done) and set(again.values()) == {SAMPLES} and done.isdisjoint(again)
    for path in sorted((tmp_path / "whole" / "evaluation").iterdir()):
        assert (run / "evaluation" / path.name).read_bytes() == path.read_bytes(), path.name

    third = start(config, run, ledger)
    assert third.wait(PATIENCE) == 0 and not asked(ledger, third), "with every answer kept no engine is asked"
