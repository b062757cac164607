"""Run by test_transport.py under torchrun: real Megatron modules in many layouts; rank 0 writes what was seen.

Every rank checks what reaches it against the Hugging Face folder, bit for bit, with NaN wherever its engine needs
nothing, and the bytes that it sent and received against the plan.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from megatron_seirenes.actor.model import build_modules, transformer_config
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.load import load_hf_folder
from megatron_seirenes.bridge.megatron_load import load_megatron_weights
from megatron_seirenes.bridge.plan import plan_sync
from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.bridge.sync_digest import differing, folder_digests, watched
from megatron_seirenes.bridge.transport import IN_FLIGHT, Transport
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import start_distributed, stop_distributed

WORLD = 4
BUCKET = 6_000
DENSE = [
    {},
    {"tensor": 2, "pipeline": 2},
    {"pipeline": 4},
    {"tensor": 2, "sequence_parallel": True},
    {"pipeline": 2, "virtual_pipeline": 2},
]
MOE = [
    {"tensor": 2, "sequence_parallel": True, "expert": 2, "expert_tensor": 1},
    {"expert": 4},
    {"pipeline": 2, "expert": 2},
    {"tensor": 2, "sequence_parallel": True, "expert": 2, "expert_tensor": 2},
]
ENGINES = [EngineLayout(WORLD, 1), EngineLayout(WORLD, 2), EngineLayout(WORLD, 4)]
MOE_ENGINES = [*ENGINES, EngineLayout(WORLD, 2, 2, expert_parallel=True)]


def built(folder: Path, config: Config, backend: object) -> list[torch.nn.Module]:
    architecture = read_architecture(folder)
    modules = build_modules(architecture, transformer_config(architecture, config, backend))
    return [module.eval() for module in modules]


def synced(folder: Path, modules: list[torch.nn.Module], training: TrainingLayout, engine: EngineLayout) -> dict:
    architecture = read_architecture(folder)
    plan = plan_sync(architecture, training, engine, itemsize=4, bucket_bytes=BUCKET, ranks_per_node=2)
    transport = Transport(modules, architecture, plan, blank=float("nan"))
    rank, needed, seen, digests = transport.rank, plan.needed(transport.rank), set(), {}
    with HfFolder(folder) as source:
        for name, tensor in watched(transport.tensors(), needed, digests):
            truth = source.read(name, tuple(slice(0, size) for size in tensor.shape))
            assert tensor.shape == truth.shape and name not in seen
            seen.add(name)
            if name not in needed:
                assert tensor.isnan().all(), name
                continue
            index = needed[name].slices(tensor.dim())
            assert torch.equal(tensor[index], truth[index]), (rank, name)
            assert int((~tensor.isnan()).sum()) in (math.prod(truth.shape), truth[index].numel()), (rank, name)
    assert differing(digests, folder_digests(folder, needed, torch.float32)) == []
    traffic = transport.traffic
    assert (traffic.sent, traffic.received) == (plan.sent[rank], plan.received[rank]), (rank, traffic)
    assert traffic.largest_buffers <= IN_FLIGHT * BUCKET, (rank, traffic)
    return {
        "total": plan.total,
        "bound": plan.bound.total,
        "buckets": traffic.buckets,
        "buffers": traffic.largest_buffers,
    }


def main(root: Path) -> None:
    seen = []
    world = start_distributed(Config.model_validate({}).parallel)
    for family, layouts, engines in (
        ("qwen3", DENSE, ENGINES),
        ("qwen2", DENSE[1:2], ENGINES),
        ("qwen3_moe", MOE, MOE_ENGINES),
    ):
        folder, checkpoint = root / family, root / f"{family}-megatron"
        for layout in layouts:
            config = Config.model_validate({"model": {"dtype": "float32"}, "parallel": layout})
            parallel = config.parallel
            parallel_state.destroy_model_parallel()
            with world.backend.actor_scope():
                parallel_state.initialize_model_parallel(
                    tensor_model_parallel_size=parallel.tensor,
                    pipeline_model_parallel_size=parallel.pipeline,
                    virtual_pipeline_model_parallel_size=parallel.virtual_pipeline,
                    expert_model_parallel_size=parallel.expert,
                    expert_tensor_parallel_size=parallel.expert_tensor,
                )
                modules, moved = built(folder, config, world.backend), built(folder, config, world.backend)
                load_hf_folder(modules, read_architecture(folder), folder)
                load_megatron_weights(moved, checkpoint)
                for one, other in zip(modules, moved, strict=True):
                    for (name, ours), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
                        assert torch.equal(ours, theirs), (family, layout, name)
            training = TrainingLayout.of(parallel, WORLD)
            for engine in engines:
                seen.append(
                    {
                        "family": family,
                        "layout": layout,
                        "tensor": engine.tensor,
                        **synced(folder, modules, training, engine),
                    }
                )
    if dist.get_rank() == 0:
        (root / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
    dist.barrier()
    stop_distributed()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
