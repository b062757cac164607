"""Run by test_layouts_of_the_actor.py under torchrun: actors in many layouts; rank 0 writes what they computed."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from actor_samples import training_sequences, weighted_likelihood

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import start_distributed, stop_distributed


def computed(folder: Path, parallel: dict, budget: int) -> dict[str, object]:
    """Scores, the report of an update, and the weights after it."""
    config = Config.model_validate(
        {
            "model": {"dtype": "float32"},
            "parallel": parallel,
            "actor": {"micro_batch_tokens": budget, "logprob_chunk_tokens": 5},
            "optimizer": {"lr": 1e-2, "epsilon": 1e-3},
        }
    )
    world = start_distributed(config.parallel)
    architecture = read_architecture(folder)
    actor = Actor(architecture, config, world.backend)
    actor.load_hf(folder)
    together = math.prod(parallel.get(name, 1) for name in ("tensor", "pipeline", "context"))
    mine = training_sequences()[world.data_rank :: world.size // together]
    scores = actor.logprobs(training_sequences())
    report = actor.update(mine, weighted_likelihood)
    weights = {name: tensor.clone() for name, tensor in hf_tensors(actor.modules, architecture)}
    seen = {
        "logprobs": [list(one.logprobs) for one in scores],
        "entropy": [list(one.entropy) for one in scores],
        "loss": report.loss,
        "grad_norm": report.grad_norm,
        "tokens": report.tokens,
    }
    rank = dist.get_rank()
    dist.barrier()
    stop_distributed()
    return {"seen": seen, "weights": weights, "rank": rank}


def main(root: Path, cases: list[dict]) -> None:
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"  # every world of this launch has a store of its own
    for case in cases:
        os.environ["MASTER_PORT"] = str(case["port"])
        result = computed(root / case["model"], case["parallel"], case["budget"])
        if result["rank"] == 0:
            torch.save({"seen": result["seen"], "weights": result["weights"]}, root / f"{case['name']}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
