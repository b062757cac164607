"""Tiny random Qwen3 models on disk, what Hugging Face says of them, and the world that an engine needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from megatron_seirenes.config.schema import Config, ModelSection, RolloutSection
from megatron_seirenes.records import Request, Sampling

SHAPE = {
    "vocab_size": 192,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}


def hf_model(kind: str, seed: int) -> torch.nn.Module:
    """A float32 model with random weights: dense with `tied` or `untied` embeddings, or `moe`, a mixture of experts."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind in ("tied", "untied"):
            return Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=kind == "tied")).eval()
        return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, **EXPERTS, tie_word_embeddings=False)).eval()


def saved(kind: str, seed: int, folder: Path, raise_rows_from: int | None = None) -> Path:
    """Saves a model; rows of the vocabulary from `raise_rows_from` on get logits far above all others."""
    model = hf_model(kind, seed)
    if raise_rows_from is not None:
        with torch.no_grad():
            model.get_output_embeddings().weight[raise_rows_from:] *= 30.0
    model.save_pretrained(folder)
    return folder


def hf_logprobs(
    folder: Path, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float, rows: int
) -> list[torch.Tensor]:
    """For each (prompt, response) the log-probability of every response token among the first `rows` ids."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for prompt, response in sequences:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1, :rows]
        table = (logits.double() / temperature).log_softmax(-1)
        found.append(table.gather(-1, torch.tensor(response)[:, None])[:, 0])
    return found


def engine_config(**rollout: object) -> Config:
    return Config(
        model=ModelSection(path="unused", dtype="float32"),
        rollout=RolloutSection(max_sequences=16, kv_cache_bytes=32 << 20, **rollout),  # type: ignore[arg-type]
    )


def request(name: str, prompt: Sequence[int], max_tokens: int, seed: int, temperature: float = 1.0) -> Request:
    return Request(
        id=name,
        problem_id="p",
        stage="R1",
        path=(0,),
        role="reasoner",
        policy="shared",
        prompt_ids=tuple(prompt),
        sampling=Sampling(max_tokens, temperature),
        seed=seed,
    )


@contextmanager
def gloo_world() -> Iterator[None]:
    """A world of one, unless a launcher or another test has made one."""
    if dist.is_initialized():
        yield
        return
    before = dict(os.environ)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(store.port)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
        os.environ |= before
