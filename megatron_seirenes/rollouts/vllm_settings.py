"""From our configuration to vLLM's engine arguments: a pure function, so that it can be read and tested without vLLM.

Only names that vLLM 0.32's `EngineArgs` and `SamplingParams` know occur here. Refused: a sequence that does not fit the
model's context, and expert parallelism on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.config.rules import NO_EXPERT_PARALLEL
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import UsageError
from megatron_seirenes.records import Sampling

MAX_DEFAULT_KV_CACHE_BYTES = 1 << 30
BYTES_PER_VALUE = {"bfloat16": 2, "float32": 4}
CPU_BLOCK_TOKENS = 128
"""Tokens of one KV cache block on a CPU; a sequence takes whole blocks."""
CPU_STEP_TOKENS = 2048
"""Prompt tokens that one engine step may read on a CPU; it bounds the activations of that step."""

CPU_BATCHED_TOKENS = 8_192


def engine_arguments(
    folder: str | Path, config: Config, architecture: Architecture, *, on_cuda: bool, max_length: int
) -> dict[str, Any]:
    """The keyword arguments of `vllm.EngineArgs`. `max_length` counts prompt and response tokens of one sequence.

    Raises UsageError when `max_length` exceeds the model's context, or one step on a CPU.
    """
    if max_length > architecture.max_positions:
        raise UsageError(
            f"sequences of {max_length} tokens were asked for; the model in {folder} has a context of "
            f"{architecture.max_positions}"
        )
    rollout = config.rollout
    timeout = ceil(config.faults.collective_minutes * 60)
    arguments: dict[str, Any] = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "trust_remote_code": config.model.trust_remote_code,
        "dtype": config.model.dtype,
        "seed": 0,  # every request carries its own
        "tensor_parallel_size": rollout.tensor,
        "distributed_executor_backend": "external_launcher",
        "distributed_timeout_seconds": timeout,
        "cpu_distributed_timeout_seconds": timeout,
        "max_model_len": max_length,
        "max_num_seqs": rollout.max_sequences,
        "enable_prefix_caching": rollout.prefix_caching,
        "async_scheduling": False,
        "logprobs_mode": "processed_logprobs",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    return arguments | (_on_cuda(config) if on_cuda else _on_cpu(config, architecture, max_length))


def _on_cuda(config: Config) -> dict[str, Any]:
    return {
        "gpu_memory_utilization": config.rollout.memory_fraction,
        "kv_cache_memory_bytes": config.rollout.kv_cache_bytes,
        "max_num_batched_tokens": config.rollout.max_batched_tokens,
        "enforce_eager": not config.rollout.cuda_graphs,
        "enable_expert_parallel": config.rollout.expert_parallel,
        "enable_sleep_mode": True,
    }


def _on_cpu(config: Config, architecture: Architecture, max_length: int) -> dict[str, Any]:
    """No prompt is cut in chunks: vLLM 0.32 fails on a CPU when a request with a seed of its own is prefilled in parts
    ("CPU Generator does not use offset"). So a step must have room for the longest sequence."""
    rollout = config.rollout
    if rollout.expert_parallel:
        raise UsageError(f"rollout.expert_parallel is true, and this engine runs on a CPU: {NO_EXPERT_PARALLEL}")
    if rollout.max_batched_tokens is not None and rollout.max_batched_tokens < max_length:
        raise UsageError(
            f"rollout.max_batched_tokens is {rollout.max_batched_tokens}; on a CPU it must hold a whole sequence, "
            f"{max_length} tokens"
        )
    return {
        "kv_cache_memory_bytes": rollout.kv_cache_bytes or default_kv_cache_bytes(config, architecture, max_length),
        "max_num_batched_tokens": rollout.max_batched_tokens or max(max_length, CPU_STEP_TOKENS),
        "enable_chunked_prefill": False,
        "enforce_eager": True,
    }


def default_kv_cache_bytes(config: Config, architecture: Architecture, max_length: int) -> int:
    """Bytes of KV cache on a CPU: room for every sequence at full length, at most 1 GiB, at least two sequences."""
    kv_heads = max(1, architecture.kv_heads // config.rollout.tensor)
    per_token = 2 * architecture.layers * kv_heads * architecture.head_dim * BYTES_PER_VALUE[config.model.dtype]
    per_sequence = per_token * CPU_BLOCK_TOKENS * -(-max_length // CPU_BLOCK_TOKENS)
    return max(2 * per_sequence, min(config.rollout.max_sequences * per_sequence, MAX_DEFAULT_KV_CACHE_BYTES))


def sampling_arguments(sampling: Sampling, seed: int | None, stop_ids: Sequence[int]) -> dict[str, Any]:
    """The keyword arguments of `vllm.SamplingParams`, without the output kind.

    `stop_ids` alone end a response: vLLM's own end-of-sequence token, of which it may know one more or one fewer than
    the model's generation config, is ignored. `logprobs: 0` asks for the log-probability of the drawn token only.
    """
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed,
        "stop_token_ids": list(stop_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "flat_logprobs": True,  # lists in place of a dictionary and an object a token
        "detokenize": False,
        "skip_clone": True,  # these parameters belong to one request; vLLM's deep copy is its largest cost
    }
