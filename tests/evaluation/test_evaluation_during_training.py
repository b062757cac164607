"""Benchmarks during training, on the real stack: they leave the run as it was, and two replicas find what one does."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_world import write_world

from megatron_seirenes.observe.writer import read_metrics

pytestmark = pytest.mark.slow

QUESTIONS = {"task": "chain_arithmetic", "split": "held_out", "count": 25}
BENCHMARKS = {
    "clean": {"problems": QUESTIONS, "samples": 4},
    "own": {"problems": QUESTIONS, "distractors": {"kind": "policy"}, "clean": "clean"},
}
NOT_COMPARED = ("time/", "throughput/", "verifier/seconds", "evaluation/")
FILES = ("answers-clean.jsonl", "answers-own.jsonl", "results.json", "results.csv", "summary.json", "results.md")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def seirenes(*arguments: str, launcher: tuple[str, ...] = ()) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *launcher, "-m", "megatron_seirenes", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Three runs of the same world: `plain`, `evaluated` every second step, and that on two ranks, `shared`."""
    folder = tmp_path_factory.mktemp("world")
    warmup, run = write_world(folder, evaluation={"benchmarks": BENCHMARKS})
    seirenes("warmup", str(warmup))
    seirenes("train", str(run), f"run.dir={folder / 'plain'}")
    seirenes("train", str(run), f"run.dir={folder / 'evaluated'}", "evaluation.every=2")
    seirenes("train", str(run), f"run.dir={folder / 'shared'}", "evaluation.every=2", launcher=TORCHRUN)
    return folder


def outcome(run: Path) -> dict:
    """Everything that training makes: metrics, rollouts and weights."""
    rows = [
        {k: v for k, v in row.items() if not k.startswith(NOT_COMPARED)} for row in read_metrics(run / "metrics.jsonl")
    ]
    rollouts = {path.name: gzip.decompress(path.read_bytes()) for path in sorted((run / "rollouts").glob("*.gz"))}
    weights = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (run / "policy").glob("*.safetensors")
    }
    return {"rows": rows, "rollouts": rollouts, "weights": weights}


def test_an_evaluation_leaves_the_run_as_it_was(world):
    assert outcome(world / "plain") == outcome(world / "evaluated")
    told = [
        any(key.startswith("evaluation/") for key in row) for row in read_metrics(world / "evaluated" / "metrics.jsonl")
    ]
    assert told == [False, True, False, True]


@pytest.mark.parametrize("step", [2, 4])
def test_two_replicas_answer_what_one_answers(world, step):
    one, two = (world / run / "evaluation" / f"step-{step:06d}" for run in ("evaluated", "shared"))
    for name in FILES:
        assert (two / name).read_bytes() == (one / name).read_bytes(), name
