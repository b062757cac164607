"""What our layer over vLLM costs: `VLLMEngine` against vLLM's own `LLM.generate` on the same requests.

    python benchmarks/engine_overhead.py [--requests 830] [--rounds 3]

The load is a step of the quickstart: many short answers of a tiny mixture of experts on one core, where overheads per
request and per token matter most. Both sides draw the same number of tokens with the same engine settings, in turns.
CPU seconds are compared, because they do not depend on who else uses the machine. Prints one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.config.schema import Config, ModelSection, RolloutSection
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.records import Request, Sampling
from megatron_seirenes.rollouts.vllm_engine import VLLMEngine
from megatron_seirenes.rollouts.vllm_process import prepare_environment
from megatron_seirenes.rollouts.vllm_settings import engine_arguments

MAX_LENGTH = 64


def tiny_model(folder: Path) -> Path:
    """A random Qwen3-MoE of about the quickstart's size."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=128,
        num_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


def load_of(count: int, seed: int) -> list[Request]:
    """Requests of 10 to 20 prompt tokens and 6 to 18 response tokens; eight share a prompt, as in a group."""
    draw = random.Random(seed)
    requests = []
    for i in range(count):
        if i % 8 == 0:
            prompt = tuple(draw.randrange(64) for _ in range(draw.randint(10, 20)))
        sampling = Sampling(max_tokens=draw.randint(6, 18))
        requests.append(Request(f"{seed}/{i}", "p", "R1", (i,), "", "shared", prompt, sampling, draw.getrandbits(62)))
    return requests


def through_engine(engine: VLLMEngine, requests: Sequence[Request]) -> int:
    """Tokens drawn by our engine, submitted and stepped as the scheduler does."""
    for request in requests:
        engine.submit(request)
    tokens = 0
    while engine.has_unfinished():
        tokens += sum(len(completion.response_ids) for completion in engine.step())
    return tokens


def through_vllm(llm: Any, requests: Sequence[Request], seeded: bool) -> int:
    """Tokens drawn by `LLM.generate`, as one calls it without further thought, with or without per-request seeds."""
    from vllm import SamplingParams

    parameters = [
        SamplingParams(
            max_tokens=request.sampling.max_tokens,
            seed=request.seed if seeded else None,
            logprobs=0,
            ignore_eos=True,
            detokenize=False,
        )
        for request in requests
    ]
    prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in requests]
    return sum(len(output.outputs[0].token_ids) for output in llm.generate(prompts, parameters, use_tqdm=False))


def measured(work: Callable[[], int]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"tokens": tokens, "wall_seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=830)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    os.environ["MASTER_PORT"] = str(store.port)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    prepare_environment(on_cuda=False)
    with tempfile.TemporaryDirectory() as scratch:
        compare(tiny_model(Path(scratch)), options.requests, options.rounds)
    dist.destroy_process_group()


def compare(folder: Path, count: int, rounds: int) -> None:
    """Runs the three variants in turns and prints each round and the ratio of the best CPU times."""
    from vllm import LLM

    config = Config(
        model=ModelSection(path=str(folder), dtype="float32"),
        rollout=RolloutSection(max_sequences=256, kv_cache_bytes=64 << 20),
    )
    architecture = read_architecture(folder)
    backend = Backend(torch.device("cpu"))
    engine = VLLMEngine(
        folder,
        config,
        architecture=architecture,
        stop_ids=(),
        sampled_vocabulary=None,
        backend=backend,
        max_length=MAX_LENGTH,
    )
    llm = LLM(**engine_arguments(folder, config, architecture, on_cuda=False, max_length=MAX_LENGTH))
    variants: dict[str, Callable[[list[Request]], int]] = {
        "engine": lambda requests: through_engine(engine, requests),
        "vllm": lambda requests: through_vllm(llm, requests, seeded=True),
        "vllm without seeds": lambda requests: through_vllm(llm, requests, seeded=False),
    }
    best: dict[str, float] = {}
    for turn in range(rounds):
        for name, work in variants.items():
            row = measured(partial(work, load_of(count, turn)))
            best[name] = min(best.get(name, float("inf")), row["cpu_seconds"] / row["tokens"])
            print(json.dumps({"variant": name, "round": turn, **row}), flush=True)
    print(json.dumps({"cpu_ratio_to_vllm": {name: round(value / best["vllm"], 3) for name, value in best.items()}}))
    engine.close()


if __name__ == "__main__":
    main()
