"""Run by test_tensor_parallel_engine.py under torchrun: two ranks hold one engine; rank 0 writes what they saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tiny_models import engine_config, hf_logprobs, request, saved

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.rollouts.vllm_engine import VLLMEngine

DRAWN = {"tied": 192, "moe": 160}


def answers(engine: VLLMEngine, folder: Path, drawn: int) -> dict[str, object]:
    """The worst difference from Hugging Face, and whether all ranks drew the same tokens."""
    requests = [request(f"r{i}", [20 + (i + j) % 100 for j in range(10 + 60 * i)], 20, i, 0.8) for i in range(4)]
    for one in requests:
        engine.submit(one)
    done = {}
    while engine.has_unfinished():
        done |= {completion.request_id: completion for completion in engine.step()}
    pairs = [(one.prompt_ids, done[one.id].response_ids) for one in requests]
    worst = max(
        (torch.tensor(done[one.id].logprobs) - expected).abs().max().item()
        for one, expected in zip(requests, hf_logprobs(folder, pairs, 0.8, drawn), strict=True)
    )
    ranks: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, done)
    return {"worst": worst, "same_on_all_ranks": all(other == ranks[0] for other in ranks)}


def main(root: Path) -> None:
    dist.init_process_group("gloo")
    seen = {}
    for kind, drawn in DRAWN.items():
        folders = [root / f"{kind}{seed}" for seed in (0, 1)]
        if dist.get_rank() == 0:
            for seed, folder in enumerate(folders):
                saved(kind, seed, folder, drawn if kind == "moe" else None)
        dist.barrier()
        engine = VLLMEngine(
            folders[0],
            engine_config(tensor=2),
            architecture=read_architecture(folders[0]),
            stop_ids=(7, 11),
            sampled_vocabulary=drawn,
            backend=Backend(torch.device("cpu")),
        )
        seen[f"{kind} as started"] = answers(engine, folders[0], drawn)
        engine.load_weights(load_file(folders[1] / "model.safetensors").items(), 1)
        seen[f"{kind} updated"] = answers(engine, folders[1], drawn)
        engine.close()
    if dist.get_rank() == 0:
        (root / "seen.json").write_text(json.dumps(seen), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
