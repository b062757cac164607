"""Bytes on one GPU, by what holds them: arithmetic on a shape and a layout (formulas: docs/tools.md).

The rank counted is the fullest: the pipeline stage with the embedding or the head. The engine's weights and cache are
counted beside the actor's activations, as if neither ever gave way to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.planning.shapes import (
    dense_layer_parameters,
    expert_parameters,
    kv_bytes_per_token,
    parameters,
    vocabulary_parameters,
)

Recompute = Literal["none", "full"]

RUNTIME_BYTES = 4e9
"""CUDA context, NCCL buffers and captured graphs: a guess."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to run: both layouts, and what of the configuration costs memory."""

    training: TrainingLayout
    engine: EngineLayout
    micro_batch_tokens: int = 20_480
    logprob_chunk_tokens: int = 1_024
    recompute: Recompute = "full"
    distributed_optimizer: bool = True


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one GPU. `kv_cache` is what is left for it, or what was asked for."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    engine_weights: float
    runtime: float
    kv_cache: float

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self))


def memory_of(architecture: Architecture, layout: Layout, gpu_bytes: float, kv_bytes: float | None = None) -> Memory:
    """What `layout` takes of a GPU; without `kv_bytes` the cache gets what the rest leaves of 95 % of the GPU."""
    training = layout.training
    dense, expert = stage_parameters(architecture, training)
    data, expert_data = data_parallel_sizes(training)
    if not layout.distributed_optimizer:
        data = expert_data = 1
    parts = {
        "parameters": 2.0 * (dense + expert),
        "gradients": 4.0 * (dense + expert),
        "optimizer": 12.0 * (dense / data + expert / expert_data),
        "activations": _activations(architecture, layout),
        "logits": 3 * 4.0 * layout.logprob_chunk_tokens * architecture.vocabulary / training.tensor,
        "engine_weights": 2.0 * parameters(architecture) / layout.engine.tensor,
        "runtime": RUNTIME_BYTES,
    }
    if architecture.experts:
        spread = architecture.layers * expert_parameters(architecture)
        cut = (parameters(architecture) - spread) / layout.engine.tensor + spread / layout.engine.replica
        parts["engine_weights"] = 2.0 * cut
    left = max(0.0, 0.95 * gpu_bytes - sum(parts.values()))
    return Memory(**parts, kv_cache=left if kv_bytes is None else kv_bytes)


def stage_parameters(architecture: Architecture, training: TrainingLayout) -> tuple[float, float]:
    """Parameters outside and inside experts on a rank of the fullest stage."""
    layers = architecture.layers / training.pipeline
    tables = 2 if training.pipeline == 1 and not architecture.tied_embeddings else 1
    dense = layers * dense_layer_parameters(architecture) + tables * vocabulary_parameters(architecture)
    expert = layers * expert_parameters(architecture)
    return dense / training.tensor, expert / (training.expert * training.expert_tensor)


def data_parallel_sizes(training: TrainingLayout) -> tuple[int, int]:
    """Ranks that share the optimizer of what is not in experts (context-parallel ones do), and of experts."""
    return (
        training.world // (training.tensor * training.pipeline),
        training.world // (training.expert_tensor * training.expert * training.pipeline),
    )


def cache_tokens(architecture: Architecture, engine: EngineLayout, kv_bytes: float) -> float:
    """Tokens whose keys and values fit one replica; key-value heads are repeated when the engine has more ranks."""
    repeats = max(1, engine.tensor // architecture.kv_heads)
    return kv_bytes * engine.tensor * engine.data / (kv_bytes_per_token(architecture) * repeats)


def _activations(architecture: Architecture, layout: Layout) -> float:
    """Full recomputation keeps each layer's input and one layer's inside; as many micro-batches are in flight as there
    are stages, so the stages' shares add up to all layers."""
    hidden, head = architecture.hidden, architecture.head_dim
    query, key = architecture.heads * head, architecture.kv_heads * head
    inside = 12 * hidden + 2 * (query + 2 * key) + 2 * query
    if experts := architecture.experts:
        inside += experts.per_token * (4 * hidden + 6 * experts.ffn_size)
    else:
        inside += 6 * architecture.ffn_size
    layers = architecture.layers
    token = layers * 2 * hidden + inside if layout.recompute == "full" else layers * inside
    return float(token) * layout.micro_batch_tokens / (layout.training.tensor * layout.training.context)
