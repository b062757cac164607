"""Run by test_engine_sync.py under torchrun on two ranks: real Megatron modules into real vLLM engines, by the plan.

Arguments: a folder to work in, and a layout of test_engine_sync.LAYOUTS as JSON. What an engine's rank does not need
arrives as NaN: an engine that read any of it would answer NaN. After each sync the engine's log-probabilities of what
it drew are compared with Hugging Face's of the synced weights. Then the sync of a run proves itself on both ranks, and
must find the tensor that is made wrong on rank 1.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tiny_models import engine_config, hf_logprobs, request, saved

from megatron_seirenes.actor.model import build_modules, transformer_config
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.load import load_hf_folder
from megatron_seirenes.bridge.plan import plan_of, plan_sync
from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.bridge.sync_digest import differing, folder_digests, watched
from megatron_seirenes.bridge.transport import Transport
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import World, start_distributed, stop_distributed
from megatron_seirenes.rollouts.vllm_engine import VLLMEngine
from megatron_seirenes.trainer.ranks import ProcessRanks
from megatron_seirenes.trainer.weight_sync import WeightsDiffer, WeightSync

BUCKET_BYTES = 100_000
ENGINE_TENSOR = (1, 2)
SPOILED = "self_attention.linear_proj.weight"
WORLD = 2


def worst_difference(engine: VLLMEngine, folder: Path, rows: int) -> float:
    """The largest difference in log-probability from Hugging Face; NaN when the engine read what it must not."""
    requests = [request(f"r{i}", [20 + (i + j) % 100 for j in range(10 + 20 * i)], 12, i, 1.0) for i in range(3)]
    for one in requests:
        engine.submit(one)
    done = {}
    while engine.has_unfinished():
        done |= {completion.request_id: completion for completion in engine.step()}
    pairs = [(one.prompt_ids, done[one.id].response_ids) for one in requests]
    expected = hf_logprobs(folder, pairs, 1.0, rows)
    return max(
        (torch.tensor(done[one.id].logprobs) - truth).abs().max().item()
        for one, truth in zip(requests, expected, strict=True)
    )


def synced(
    kind: str, tensor: int, folders: list[Path], modules, config: Config, world: World, ranks: ProcessRanks
) -> dict[str, Any]:
    """Starts an engine on the weights of the first folder, syncs those of the second, and says how it went."""
    architecture = read_architecture(folders[1])
    plan = plan_sync(
        architecture,
        TrainingLayout.of(config.parallel, WORLD),
        EngineLayout(WORLD, tensor),
        itemsize=4,
        bucket_bytes=BUCKET_BYTES,
    )
    engine = VLLMEngine(
        folders[0],
        engine_config(tensor=tensor),
        architecture=architecture,
        stop_ids=(),
        sampled_vocabulary=None,
        backend=world.backend,
    )
    transport = Transport(modules, architecture, plan, blank=float("nan"))
    digests: dict[str, str] = {}
    needed = plan.needed(world.rank)
    engine.load_weights(watched(transport.tensors(), needed, digests), 1)
    seen = {
        "kind": kind,
        "tensor": tensor,
        "wrong": differing(digests, folder_digests(folders[1], needed, torch.float32)),
        "worst": worst_difference(engine, folders[1], architecture.vocabulary),
        "old": worst_difference(engine, folders[0], architecture.vocabulary),
        "planned": plan.total,
        "received": transport.traffic.received,
        "buckets": transport.traffic.buckets,
        "buffers": transport.traffic.largest_buffers / BUCKET_BYTES,
    }
    layout = config.model_copy(update={"rollout": engine_config(tensor=tensor).rollout})
    seen["fault"] = fault_found(modules, layout, folders[1], ranks, engine)
    engine.close()
    return seen


def fault_found(modules, config: Config, folder: Path, ranks: ProcessRanks, engine: VLLMEngine) -> str:
    """What the run's own sync says of a wrong tensor on rank 1; without one it must say nothing."""
    architecture = read_architecture(folder)

    def sync(verify: str) -> None:
        plan = plan_of(config, architecture, WORLD)
        settings = {"folder": folder, "fresh": True, "dtype": "float32", "scratch": folder.parent / ".synced"}
        WeightSync(modules, architecture, plan, ranks, verify=verify, **settings)(engine, 2)

    sync("every")
    sync("first")
    spoiled = [one.data for name, one in modules[0].named_parameters() if name.endswith(SPOILED)][-1]
    before = spoiled.clone()
    spoiled += ranks.rank
    try:
        sync("first")
    except WeightsDiffer as difference:
        return str(difference)
    finally:
        spoiled.copy_(before)
    return "nothing"


def main(root: Path, parallel: dict[str, Any], kinds: list[str]) -> None:
    config = Config.model_validate({"model": {"dtype": "float32"}, "parallel": parallel})
    world = start_distributed(config.parallel)
    ranks = ProcessRanks(1, world.data_rank, timedelta(minutes=10))
    seen = []
    for kind in kinds:
        folders = [root / f"{kind}{seed}" for seed in (0, 1)]
        if world.rank == 0:
            for seed, folder in enumerate(folders):
                saved(kind, seed, folder)
        dist.barrier()
        architecture = read_architecture(folders[1])
        with world.backend.actor_scope():
            modules = build_modules(architecture, transformer_config(architecture, config, world.backend))
            load_hf_folder(modules, architecture, folders[1])
        seen += [synced(kind, tensor, folders, modules, config, world, ranks) for tensor in ENGINE_TENSOR]
    everyone: list[list[dict[str, Any]]] = [[] for _ in range(WORLD)]
    dist.all_gather_object(everyone, seen)
    if world.rank == 0:
        (root / "seen.json").write_text(json.dumps(everyone), encoding="utf-8")
    dist.barrier()
    stop_distributed()


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
