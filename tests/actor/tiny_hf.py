"""Tiny random Hugging Face models of every family, and the independent reference of what the actor computes.

Norm weights and biases are perturbed, so that a dropped or swapped one shows; head_dim is not hidden / heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

VOCABULARY = 61
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "rope_theta": 10_000.0,
}
_EXPERTS = {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1}

CONFIGS: dict[str, Callable[[], object]] = {
    "llama_tied": lambda: LlamaConfig(**_SHAPE, head_dim=16, tie_word_embeddings=True),
    "qwen2": lambda: Qwen2Config(**_SHAPE, tie_word_embeddings=False),
    "qwen3_tied": lambda: Qwen3Config(**_SHAPE, head_dim=16, tie_word_embeddings=True),
    "qwen3_moe": lambda: Qwen3MoeConfig(**_SHAPE, **_EXPERTS, head_dim=16, norm_topk_prob=True),
    "qwen3_moe_unnormalized": lambda: Qwen3MoeConfig(**_SHAPE, **_EXPERTS, head_dim=16, norm_topk_prob=False),
}

# Deep and wide enough to be cut into four pipeline stages, four tensor shards or eight expert shards.
_DEEP = {**_SHAPE, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16}
DEEP_CONFIGS: dict[str, Callable[[], object]] = {
    "deep_llama": lambda: LlamaConfig(**_DEEP, tie_word_embeddings=False),
    "deep_qwen3_tied": lambda: Qwen3Config(**_DEEP, tie_word_embeddings=True),
    "deep_qwen3_moe": lambda: Qwen3MoeConfig(**_DEEP, **{**_EXPERTS, "num_experts": 8}, norm_topk_prob=True),
}


def make_model(name: str, seed: int = 0) -> PreTrainedModel:
    """A float32 model with every one-dimensional parameter moved away from its initial ones or zeros."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = (CONFIGS | DEEP_CONFIGS)[name]()
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def save_model(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def response_scores(
    model: PreTrainedModel, prompt: Sequence[int], response: Sequence[int], temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies of a response by the whole logits; carries gradient."""
    logits = response_logits(model, prompt, response) / temperature
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs.gather(1, torch.tensor(response)[:, None]).squeeze(1)
    return chosen, -(logprobs.exp() * logprobs).sum(dim=-1)


def response_logits(model: PreTrainedModel, prompt: Sequence[int], response: Sequence[int]) -> Tensor:
    """The logits that predict each token of a response, [response, vocabulary]; carries gradient."""
    return model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].float()


def published(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Weights or gradients under the names of a Hugging Face folder, where every expert has tensors of its own."""
    for name, tensor in tensors.items():
        place, _, kind = name.rpartition(".")
        if kind not in ("gate_up_proj", "down_proj"):
            yield name, tensor
            continue
        for expert, whole in enumerate(tensor):
            parts = zip(("gate", "up"), whole.chunk(2), strict=True) if kind == "gate_up_proj" else [("down", whole)]
            yield from ((f"{place}.{expert}.{part}_proj.weight", one) for part, one in parts)


def in_megatron_layout(tensors: Mapping[str, Tensor], config: object) -> dict[str, Tensor]:
    """Weights or gradients of a Hugging Face model under Megatron-Core's names, for one rank and the local spec.

    Written by hand and apart from the bridge, so that it can tell on it.
    """
    groups, hidden = config.num_key_value_heads, config.hidden_size  # type: ignore[attr-defined]
    result = {
        "embedding.word_embeddings.weight": tensors["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": tensors["model.norm.weight"],
    }
    if not config.tie_word_embeddings:  # type: ignore[attr-defined]
        result["output_layer.weight"] = tensors["lm_head.weight"]
    for layer in range(config.num_hidden_layers):  # type: ignore[attr-defined]
        theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        for kind, width in (("weight", hidden), ("bias", 1)):
            parts = [tensors.get(f"{theirs}self_attn.{one}_proj.{kind}") for one in "qkv"]
            if parts[0] is not None:
                joined = torch.cat([part.reshape(groups, -1, width) for part in parts], dim=1)
                shape = (-1, width) if kind == "weight" else (-1,)
                result[f"{ours}self_attention.linear_qkv.{kind}"] = joined.reshape(shape)
        result[f"{ours}self_attention.linear_proj.weight"] = tensors[f"{theirs}self_attn.o_proj.weight"]
        result[f"{ours}input_layernorm.weight"] = tensors[f"{theirs}input_layernorm.weight"]
        result[f"{ours}pre_mlp_layernorm.weight"] = tensors[f"{theirs}post_attention_layernorm.weight"]
        for one in "qk":
            if (norm := tensors.get(f"{theirs}self_attn.{one}_norm.weight")) is not None:
                result[f"{ours}self_attention.{one}_layernorm.weight"] = norm
        result |= _mlp(tensors, theirs, ours)
    return result


def _mlp(tensors: Mapping[str, Tensor], theirs: str, ours: str) -> dict[str, Tensor]:
    if f"{theirs}mlp.gate.weight" not in tensors:
        gate, up = tensors[f"{theirs}mlp.gate_proj.weight"], tensors[f"{theirs}mlp.up_proj.weight"]
        return {
            f"{ours}mlp.linear_fc1.weight": torch.cat([gate, up]),
            f"{ours}mlp.linear_fc2.weight": tensors[f"{theirs}mlp.down_proj.weight"],
        }
    result = {f"{ours}mlp.router.weight": tensors[f"{theirs}mlp.gate.weight"]}
    gate_up, down = tensors[f"{theirs}mlp.experts.gate_up_proj"], tensors[f"{theirs}mlp.experts.down_proj"]
    for expert in range(len(gate_up)):
        place = f"{ours}mlp.experts.local_experts.{expert}"
        result[f"{place}.linear_fc1.weight"] = gate_up[expert]
        result[f"{place}.linear_fc2.weight"] = down[expert]
    return result
