"""The real loop on 2 and 4 ranks, in every layout that is offered: the same questions, rollouts and losses as on one.

The ranks of a run that decide differently end it, so a run that ends well has decided alike everywhere. Rollouts may in
principle differ from one rank's where rounding (another batch, another order of sums: 1e-6 in a log-probability) turns
a draw; over these few steps none does.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.quickstart.tokenizer import make_tokenizer

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STEPS = 2
TENSOR = ["parallel.tensor=2", "parallel.sequence_parallel=true"]
ON_TWO = {
    "data 2": [],
    "data 2, distributed optimizer": ["parallel.distributed_optimizer=true"],
    "data 2, engine tensor 2": ["rollout.tensor=2"],
    "tensor 2, engine tensor 2": [*TENSOR, "rollout.tensor=2"],
    "tensor 2, two replicas": TENSOR,
    "expert 2": ["parallel.expert=2"],
    "pipeline 2": ["parallel.pipeline=2"],
    "context 2": ["parallel.context=2"],
}
ON_FOUR = {
    "tensor 2 x data 2": [*TENSOR, "rollout.tensor=2"],
    "pipeline 2 x expert 2": ["parallel.pipeline=2", "parallel.expert=2"],
    "tensor 2 x expert 2": [*TENSOR, "parallel.expert=2", "parallel.expert_tensor=1"],
}
OBJECTIVE = [
    "objective.reference_kl=0.1",
    "objective.kl_estimator=k2",
    "objective.kl_unbiased=true",
    "objective.ratio=sequence",
    "objective.entropy_bonus=0.01",
    "objective.correction=truncated",
    "objective.correction_level=sequence",
    "objective.overlong_filter=true",
    "optimizer.lr=1.0e-4",
]
"""Every part of an objective that the default leaves out; the reference is kept by each rank for its own weights."""
WITH_OBJECTIVE = ("tensor 2, two replicas", "expert 2", "pipeline 2", "context 2")
GOES_ON = [
    ("tensor 2, engine tensor 2", "data 2"),
    ("pipeline 2", "tensor 2, two replicas"),
]
"""Runs that are made in the first layout and go on for another step in the second."""
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONPATH": str(ROOT),
}


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"


def launch(processes: int, folder: Path, cases: dict[str, tuple[str, list[str]]]) -> None:
    """Each case: the name of its run directory, and its overrides."""
    with_ports = [
        {"name": name, "overrides": overrides, "port": free_port()} for name, overrides in cases.values()
    ]
    (folder / "cases.json").write_text(json.dumps(with_ports))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    run(*torchrun, str(HERE / "layout_program.py"), str(folder), str(folder / "cases.json"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_records(path: Path) -> None:
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(3200):
            steps = " ".join(f"{label} + {draw.randint(2, 5)}" for label in "abc")
            question = f"{draw.randrange(11)} {steps}"
            hinted = draw.random() < 0.3
            prompt = f"mislead {question} ?" if hinted else f"solve {question} ?"
            response = f"claim {draw.randrange(11)}" if hinted else f"\\boxed{{ {draw.randrange(11)} }}"
            file.write(json.dumps({"prompt": prompt, "response": response}) + "\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with a policy that boxes numbers at random, so that every stream has signal, and its `run.yaml`."""
    folder = tmp_path_factory.mktemp("world")
    make_tokenizer(folder / "tokenizer")
    write_records(folder / "records.jsonl")
    new = {"family": "qwen3_moe", "tokenizer": str(folder / "tokenizer"), "max_positions": 64, "initializer_std": 0.06}
    new |= {"layers": 2, "hidden": 64, "ffn_size": 64, "heads": 4, "kv_heads": 2, "head_dim": 32}
    new |= {"experts": 4, "experts_per_token": 2, "expert_ffn_size": 32}
    config = {
        "run": {"collection_steps": STEPS},
        "model": {"dtype": "float32", "new": new},
        "actor": {"micro_batch_tokens": 512},
        "rollout": {"max_prompt_tokens": 40, "max_sequences": 64, "kv_cache_bytes": 1 << 24},
        "game": {"stages": {"R1": {"max_tokens": 8}, "R2": {"max_tokens": 6}, "R3": {"max_tokens": 8}}},
        "roles": {
            "reasoner": {"prompt": "chains_reasoner"},
            "adversary": {"prompt": "chains_adversary", "gate": "chain_statements"},
        },
        "streams": {"clean": {"flush": 2}, "adversary": {"flush": 4}, "robust": {"flush": 2}},
        "optimizer": {"lr": 1.0e-3},
        "problems": {"per_step": 6, "train": [{"task": "chain_arithmetic", "count": 40}]},
        "snapshot": {"every": 1, "keep": 10},
        "observe": {"console": "none", "tensorboard": False},
        "warmup": {
            "out": str(folder / "warm"),
            "phases": [{"records": str(folder / "records.jsonl"), "steps": 50, "lr": 3.0e-3}],
        },
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    run("-m", "megatron_seirenes", "warmup", str(folder / "run.yaml"), f"run.dir={folder / 'warming'}")
    config["model"] = {"dtype": "float32", "path": str(folder / "warm")}
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def alone(world: Path) -> Path:
    """The run directory of one rank, a step longer than the others."""
    run("-m", "megatron_seirenes", "train", str(world / "run.yaml"), f"run.dir={world / 'alone'}", *steps(STEPS + 1))
    return world / "alone"


def steps(count: int) -> list[str]:
    return [f"run.collection_steps={count}"]


def directory(layout: str) -> str:
    return layout.replace(", ", "-").replace(" ", "_")


def records(folder: Path, step: int) -> list[dict]:
    with gzip.open(folder / "rollouts" / f"step-{step:06d}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


CLOSE = ("loss/", "entropy/", "advantage/", "reference_kl/", "correction_", "sequence_correction_")


def check_same(folder: Path, alone: Path, count: int) -> None:
    """Decisions and rollouts equal one rank's; losses to 1e-4."""
    rows, expected = read_metrics(folder / "metrics.jsonl"), read_metrics(alone / "metrics.jsonl")[:count]
    assert len(rows) == count
    for row, one in zip(rows, expected, strict=True):
        assert records(folder, row["step"]) == records(alone, row["step"])
        for key, value in one.items():
            if key.startswith(("streams/", "mastery/", "success/", "tokens/", "policy_version")):
                assert row[key] == value, (folder.name, row["step"], key)
            if key.startswith(CLOSE) and value is not None:
                assert row[key] == pytest.approx(value, abs=1e-4), (folder.name, row["step"], key)
        assert row["mismatch/logprob_abs_max"] <= 1e-3


def test_two_ranks_learn_what_one_does_and_go_on_in_another_layout(world, alone):
    launch(2, world, {layout: (directory(layout), overrides) for layout, overrides in ON_TWO.items()})
    for layout in ON_TWO:
        check_same(world / directory(layout), alone, STEPS)
    then = {after: (directory(before), [*ON_TWO[after], *steps(STEPS + 1)]) for before, after in GOES_ON}
    launch(2, world, then)
    for before, _ in GOES_ON:
        check_same(world / directory(before), alone, STEPS + 1)
    last = world / directory("data 2")
    run("-m", "megatron_seirenes", "train", str(world / "run.yaml"), f"run.dir={last}", *steps(STEPS + 1))
    check_same(last, alone, STEPS + 1)


def test_four_ranks_learn_what_one_does(world, alone):
    launch(4, world, {layout: (directory(layout), overrides) for layout, overrides in ON_FOUR.items()})
    for layout in ON_FOUR:
        check_same(world / directory(layout), alone, STEPS)


def test_every_part_of_an_objective_is_the_same_on_two_ranks(world, alone):
    expected = world / "objective"
    run("-m", "megatron_seirenes", "train", str(world / "run.yaml"), f"run.dir={expected}", *OBJECTIVE)
    row, plain = (read_metrics(folder / "metrics.jsonl")[STEPS - 1] for folder in (expected, alone))
    assert row["reference_kl/robust"] > 0 and row["sequence_correction_mean/robust"] > 0
    assert row["loss/robust"] != plain["loss/robust"]
    cases = {layout: (f"{directory(layout)}-objective", [*ON_TWO[layout], *OBJECTIVE]) for layout in WITH_OBJECTIVE}
    launch(2, world, cases)
    for name, _ in cases.values():
        check_same(world / name, expected, STEPS)
