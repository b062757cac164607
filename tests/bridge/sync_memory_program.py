"""Run by test_sync_memory.py under torchrun on two ranks: what the stream of a sync costs in resident memory.

    sync_memory_program.py FOLDER LAYOUTS.json

Linux is asked for the most memory that the process held (`VmHWM`, reset before each stream), so what the allocator,
gloo and Python hold counts as well. Rank 0 writes, for each layout, the worst rank's figures into FOLDER/seen.json.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from megatron_seirenes.actor.model import build_modules, transformer_config
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.load import load_hf_folder
from megatron_seirenes.bridge.plan import plan_of
from megatron_seirenes.bridge.transport import Transport
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import start_distributed, stop_distributed

WORLD = 2


def memory(what: str) -> int:
    """Bytes of resident memory: `VmRSS` now, `VmHWM` at the most since the last reset."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(what))


def streamed(transport: Transport) -> tuple[int, float]:
    """What a stream that nobody keeps anything of costs at its peak, in bytes, and its seconds."""
    gc.collect()
    dist.barrier()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before, started = memory("VmRSS"), time.perf_counter()
    for _ in transport.tensors():
        pass
    dist.barrier()
    return memory("VmHWM") - before, time.perf_counter() - started


def measured(folder: Path, case: dict, backend: object) -> dict[str, float]:
    config = Config.model_validate({"model": {"dtype": "float32"}, **case})
    parallel, architecture = config.parallel, read_architecture(folder)
    parallel_state.destroy_model_parallel()
    with backend.actor_scope():
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=parallel.tensor,
            pipeline_model_parallel_size=parallel.pipeline,
            expert_model_parallel_size=parallel.expert,
            expert_tensor_parallel_size=parallel.expert_tensor,
        )
        modules = build_modules(architecture, transformer_config(architecture, config, backend))
        load_hf_folder(modules, architecture, folder)
    plan = plan_of(config, architecture, WORLD)
    runs = [streamed(Transport(modules, architecture, plan)) for _ in range(3)]
    size = sum(p.nbytes for module in modules for p in module.parameters())
    return {
        "received": int(plan.received.max()),
        "buckets": len(plan.buckets) - 1,
        "extra": max(extra for extra, _ in runs),
        "seconds": min(seconds for _, seconds in runs),
        "held": size,
    }


def main(folder: Path, layouts: dict[str, dict]) -> None:
    world = start_distributed(Config.model_validate({}).parallel)
    seen = {name: measured(folder / case.pop("model"), case, world.backend) for name, case in layouts.items()}
    everyone: list[dict[str, dict[str, float]]] = [{} for _ in range(WORLD)]
    dist.all_gather_object(everyone, seen)
    if world.rank == 0:
        worst = {
            name: {key: max(one[name][key] for one in everyone) for key in figures} for name, figures in seen.items()
        }
        (folder / "seen.json").write_text(json.dumps(worst), encoding="utf-8")
    dist.barrier()
    stop_distributed()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
