"""Shapes of published models, so that a cluster can be planned before a checkpoint is downloaded; and their sizes.

`SHAPES` holds what the models' own `config.json` say. Parameter counts follow from the shape alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megatron_seirenes.architecture import Architecture, architecture_from_config, read_architecture
from megatron_seirenes.errors import UsageError

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3_584,
        "intermediate_size": 18_944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "max_position_embeddings": 32_768,
    },
    "qwen3-4b": {
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 2_560,
        "intermediate_size": 9_728,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 262_144,
        "tie_word_embeddings": True,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 48,
        "hidden_size": 2_048,
        "intermediate_size": 6_144,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 262_144,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
    "qwen3-32b": {
        "model_type": "qwen3",
        "num_hidden_layers": 64,
        "hidden_size": 5_120,
        "intermediate_size": 25_600,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
    },
    "llama3.1-8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4_096,
        "intermediate_size": 14_336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
    },
}


def find_shape(model: str) -> Architecture:
    """The shape of a name of `SHAPES`, or of a Hugging Face model folder. Raises UsageError or DataError."""
    if model in SHAPES:
        return architecture_from_config(SHAPES[model], source=model)
    if not Path(model).is_dir():
        raise UsageError(f"model {model!r} is neither a folder nor a known shape; known are: {', '.join(SHAPES)}")
    return read_architecture(model)


def expert_parameters(architecture: Architecture) -> int:
    """Parameters of all experts of one layer."""
    experts = architecture.experts
    return 3 * architecture.hidden * experts.ffn_size * experts.count if experts else 0


def dense_layer_parameters(architecture: Architecture) -> int:
    """Parameters of one layer outside its experts."""
    hidden, head = architecture.hidden, architecture.head_dim
    query, key = architecture.heads * head, architecture.kv_heads * head
    attention = hidden * (2 * query + 2 * key)
    norms = 2 * hidden + (2 * head if architecture.family.qk_norm else 0)
    bias = query + 2 * key if architecture.family.qkv_bias else 0
    experts = architecture.experts
    mlp = hidden * experts.count if experts else 3 * hidden * architecture.ffn_size
    return attention + norms + bias + mlp


def vocabulary_parameters(architecture: Architecture) -> int:
    """Parameters of the embedding, which are those of the head, too."""
    return architecture.vocabulary * architecture.hidden


def parameters(architecture: Architecture) -> int:
    """All parameters of a checkpoint; a tied embedding counts once."""
    layer = dense_layer_parameters(architecture) + expert_parameters(architecture)
    tables = 1 if architecture.tied_embeddings else 2
    return architecture.layers * layer + tables * vocabulary_parameters(architecture) + architecture.hidden


def active_parameters(architecture: Architecture) -> int:
    """Parameters that one token is multiplied with: chosen experts only, the head, no embedding."""
    layer = dense_layer_parameters(architecture)
    if experts := architecture.experts:
        layer += expert_parameters(architecture) * experts.per_token // experts.count
    return architecture.layers * layer + vocabulary_parameters(architecture)


def kv_bytes_per_token(architecture: Architecture, itemsize: int = 2) -> int:
    """Keys and values of one token in all layers, over all ranks of a replica."""
    return 2 * architecture.layers * architecture.kv_heads * architecture.head_dim * itemsize
