"""The actor over 2 and 4 ranks equals one rank: log-probabilities, loss, gradient norm and the weights after AdamW.

One rank equals Hugging Face (test_parity.py). Context parallelism is here with packing, in every combination.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_hf
import torch

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
DENSE, MOE = "qwen3_tied", "qwen3_moe"
TENSOR = {"tensor": 2, "sequence_parallel": True}
ON_ONE = {DENSE: (DENSE, {}), MOE: (MOE, {})}
ON_TWO = {
    "context 2": (DENSE, {"context": 2}),
    "context 2, experts": (MOE, {"context": 2}),
    "tensor 2": (DENSE, TENSOR),
    "pipeline 2": (DENSE, {"pipeline": 2}),
    "expert 2": (MOE, {"expert": 2}),
}
ON_FOUR = {
    "context 4": (DENSE, {"context": 4}),
    "context 2 x tensor 2": (DENSE, {"context": 2, **TENSOR}),
    "context 2 x tensor 2, experts": (MOE, {"context": 2, **TENSOR}),
    "context 2 x data 2": (DENSE, {"context": 2}),
    "context 2 x pipeline 2": (DENSE, {"context": 2, "pipeline": 2}),
    "context 2 x expert 2": (MOE, {"context": 2, "expert": 2}),
    "context 2 x data 2, distributed optimizer": (MOE, {"context": 2, "distributed_optimizer": True}),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name in (DENSE, MOE):
        tiny_hf.save_model(tiny_hf.make_model(name), root / name)
    launch(root, 1, ON_ONE)
    return root


def launch(root: Path, processes: int, cases: dict[str, tuple[str, dict]]) -> None:
    described = [
        {"name": name, "model": model, "parallel": parallel, "budget": 14, "port": free_port()}
        for name, (model, parallel) in cases.items()
    ]
    (root / "cases.json").write_text(json.dumps(described))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *torchrun, str(HERE / "layouts_program.py"), str(root), str(root / "cases.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(("processes", "cases"), [(2, ON_TWO), (4, ON_FOUR)])
def test_every_layout_gives_the_numbers_of_one_rank(models: Path, processes: int, cases: dict) -> None:
    launch(models, processes, cases)
    for name, (model, _) in cases.items():
        one, seen = (torch.load(models / f"{file}.pt") for file in (model, name))
        for kind in ("logprobs", "entropy"):
            for values, expected in zip(seen["seen"][kind], one["seen"][kind], strict=True):
                assert values == pytest.approx(expected, abs=1e-5), (name, kind)
        for kind in ("loss", "grad_norm", "tokens"):
            assert seen["seen"][kind] == pytest.approx(one["seen"][kind], rel=1e-5), (name, kind)
        for key, weight in one["weights"].items():
            assert float((seen["weights"][key] - weight).abs().max()) <= 5e-6, (name, key)
