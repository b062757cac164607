"""Run by test_relayout.py under torchrun: actors that train and save, or load what others saved and say what they got.

Rank 0 writes `NAME.pt`: the weights and both moments of AdamW under their published names, and after one update more
the weights again. A distributed optimizer leaves moments in parts that no parameter has, so there they are left out:
the test finds them in the checkpoints, of which each case leaves one, made before that last update.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from actor_samples import training_sequences, weighted_likelihood
from layouts_program import leave_world

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import start_distributed

Weights = dict[str, torch.Tensor]


def weights(actor: Actor) -> Weights:
    return {name: tensor.clone() for name, tensor in hf_tensors(actor.modules, actor.architecture)}


def moments(actor: Actor, kind: str) -> Weights:
    """The moments `kind` of all parameters, by the road that weights take."""
    parameters = [parameter for module in actor.modules for parameter in module.parameters()]
    kept = [parameter.detach().clone() for parameter in parameters]
    optimizers = [part.optimizer for part in actor._optimizer.megatron.chained_optimizers]
    state = {parameter: value for optimizer in optimizers for parameter, value in optimizer.state.items()}
    for parameter in parameters:
        parameter.data.copy_(state[parameter][kind])
    found = weights(actor)
    for parameter, value in zip(parameters, kept, strict=True):
        parameter.data.copy_(value)
    return found


def run(case: dict[str, Any], root: Path) -> dict[str, Any]:
    """Trains two steps and saves, or loads; then looks, and takes one step."""
    config = Config.model_validate(
        {
            "model": {"dtype": "float32"},
            "parallel": case["parallel"],
            "actor": {"micro_batch_tokens": 14},
            "optimizer": {"lr": 1e-2, "epsilon": 1e-3},
        }
    )
    world = start_distributed(config.parallel)
    folder = root / case["model"]
    actor = Actor(read_architecture(folder), config, world.backend)
    sequences = training_sequences()
    mine = sequences[world.data_rank :: case["data"]]
    if case["loads"]:
        actor.load(root / f"{case['loads']}.checkpoint")
        actor.save(root / f"{case['name']}.checkpoint")
    else:
        actor.load_hf(folder)
        for _ in range(2):
            actor.update(mine, weighted_likelihood)
        actor.save(root / f"{case['name']}.checkpoint")
    seen: dict[str, Any] = {"updates": actor.updates, "weights": weights(actor)}
    if not config.parallel.distributed_optimizer:
        seen |= {kind: moments(actor, kind) for kind in ("exp_avg", "exp_avg_sq")}
    actor.update(mine, weighted_likelihood)
    seen["after"] = weights(actor)
    if world.rank == 0:
        torch.save(seen, root / f"{case['name']}.pt")
    return seen


def main(root: Path, cases: list[dict[str, Any]]) -> None:
    for case in cases:
        run(case, root)
        leave_world()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
