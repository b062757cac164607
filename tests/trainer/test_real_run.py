"""The commands on the real stack: Megatron-Core and vLLM in one process on a CPU, a tiny MoE, all three streams."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_world import write_world

from megatron_seirenes.observe.writer import read_metrics

STREAMS = ("clean", "adversary", "robust")
TIMES = ("time/", "throughput/", "verifier/seconds")


def seirenes(*arguments: str, check: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "megatron_seirenes", *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == check, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with a warmed-up policy (`warm/`) and a configuration (`run.yaml`)."""
    folder = tmp_path_factory.mktemp("world")
    held_out = {"task": "chain_arithmetic", "split": "held_out", "count": 8}
    benchmarks = {
        "clean": {"problems": held_out, "samples": 2},
        "own_hints": {"problems": held_out, "distractors": {"kind": "policy"}},
    }
    warmup, _ = write_world(
        folder,
        snapshot={"every": 2, "keep": 10},
        observe={"console": "plain", "tensorboard": True},
        evaluation={"benchmarks": benchmarks},
    )
    seirenes("warmup", str(warmup))
    return folder


@pytest.fixture(scope="module")
def whole(world: Path) -> Path:
    """The run directory of an uninterrupted run."""
    folder = world / "whole"
    seirenes("train", str(world / "run.yaml"), f"run.dir={folder}")
    return folder


def outcome(folder: Path) -> dict:
    rows = [
        {key: value for key, value in row.items() if not key.startswith(TIMES)}
        for row in read_metrics(folder / "metrics.jsonl")
    ]
    files = [*sorted((folder / "rollouts").iterdir()), folder / "policy" / "model.safetensors"]
    return {"rows": rows, "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}}


def test_every_stream_learns_and_engine_and_actor_agree(whole):
    rows = read_metrics(whole / "metrics.jsonl")
    assert all(rows[-1][f"streams/{name}/updates_total"] > 0 for name in STREAMS)
    assert max(row["mismatch/logprob_abs_max"] for row in rows) <= 1e-3
    assert (whole / "config.yaml").exists() and (whole / "timeline.json").exists()


def test_the_first_update_after_a_sync_is_on_policy(whole):
    first = read_metrics(whole / "metrics.jsonl")[0]
    stream = next(name for name in ("clean", "robust") if first[f"ppo_kl/{name}"] is not None)
    assert first["streams/clean/updates"] == 1, "the world gives the first step a clean flush"
    assert abs(first[f"ppo_kl/{stream}"]) <= 1e-6 and first[f"clip_fraction/{stream}"] == 0.0


def test_two_runs_are_the_same_bit_for_bit(world, whole):
    seirenes("train", str(world / "run.yaml"), f"run.dir={world / 'again'}")
    assert outcome(world / "again") == outcome(whole)


def test_two_replicas_learn_what_one_process_does(world, whole):
    """Data parallel 2 under torchrun: the same rollouts, flushes and counters; losses to 1e-4 (more in tests/ranks)."""
    folder = world / "two"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "megatron_seirenes"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = ["train", str(world / "run.yaml"), f"run.dir={folder}", "run.collection_steps=2"]
    done = subprocess.run([sys.executable, *torchrun, *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    for step, (row, one) in enumerate(zip(outcome(folder)["rows"], outcome(whole)["rows"][:2], strict=True), start=1):
        name = f"step-{step:06d}.jsonl.gz"
        assert (folder / "rollouts" / name).read_bytes() == (whole / "rollouts" / name).read_bytes()
        assert {key: row[key] for key in row if key.startswith(("streams/", "success/", "mastery/"))} == {
            key: one[key] for key in one if key.startswith(("streams/", "success/", "mastery/"))
        }
        losses = [f"loss/{stream}" for stream in STREAMS if one[f"loss/{stream}"] is not None]
        assert losses and [row[key] for key in losses] == pytest.approx([one[key] for key in losses], abs=1e-4)


def test_stopped_by_a_signal_and_gone_on_is_never_stopped(world, whole):
    folder = world / "stopped"
    command = [sys.executable, "-m", "megatron_seirenes", "train", str(world / "run.yaml"), f"run.dir={folder}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 300
    metrics = folder / "metrics.jsonl"
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()[0][-4000:]
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 75 and "saved" in output, output[-2000:]
    assert (folder / "STOPPED").exists() and len(read_metrics(metrics)) < 4
    seirenes("train", str(world / "run.yaml"), f"run.dir={folder}")
    assert not (folder / "STOPPED").exists()
    assert outcome(folder) == outcome(whole)


def test_a_finished_run_is_not_run_again(world, whole):
    before = outcome(whole)
    seirenes("train", str(world / "run.yaml"), f"run.dir={whole}")
    assert outcome(whole) == before
    refused = seirenes("train", str(world / "run.yaml"), f"run.dir={whole}", "--resume", "never", check=2)
    assert "already holds a run" in refused.stderr


def test_the_trained_policy_is_evaluated(world, whole):
    folder = world / "evaluated"
    seirenes("evaluate", str(world / "run.yaml"), f"model.path={whole / 'policy'}", f"run.dir={folder}")
    results = json.loads((folder / "evaluation" / "results.json").read_text())
    assert results["clean"]["questions"] == 8 and 0 <= results["clean"]["mean"] <= 1
    assert len((folder / "evaluation" / "answers-clean.jsonl").read_text().splitlines()) == 16


def test_missing_input_names_itself(world, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    unanswered = tmp_path / "unanswered.jsonl"
    unanswered.write_text('{"question": "1 + 1?", "answer": "2"}\n{"question": "2 + 2?"}\n')
    base = ("train", str(world / "run.yaml"), f"run.dir={tmp_path / 'run'}")
    assert "nowhere" in seirenes(*base, "model.path=nowhere", check=2).stderr
    assert not (tmp_path / "run").exists()
    assert "empty.jsonl" in seirenes(*base, f"problems.train=[{{path: {empty}}}]", check=2).stderr
    error = seirenes(*base, f"problems.train=[{{path: {unanswered}}}]", check=2).stderr
    assert "unanswered.jsonl" in error and "2" in error and "answer" in error
    assert "Traceback" not in error
