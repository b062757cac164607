"""The model families we train, as a table, and the shape of one model read from its Hugging Face `config.json`.

Pure data: the actor builds a Megatron-Core model from an `Architecture`, the bridge maps weight names from it, the
configuration checks layouts and memory against it. A new family is a new row of `FAMILIES`, not a new branch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.errors import DataError


@dataclass(frozen=True, slots=True)
class Family:
    """What the members of a family share and `config.json` does not say in one common key."""

    model_type: str
    qkv_bias: bool
    qk_norm: bool
    moe: bool


FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", qkv_bias=False, qk_norm=False, moe=False),
        Family("qwen2", qkv_bias=True, qk_norm=False, moe=False),
        Family("qwen3", qkv_bias=False, qk_norm=True, moe=False),
        Family("qwen3_moe", qkv_bias=False, qk_norm=True, moe=True),
    )
}


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture-of-experts part of a shape. `ffn_size` is the intermediate size of one expert."""

    count: int
    per_token: int
    ffn_size: int
    normalize_weights: bool


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of one model. `vocabulary` is the number of rows of the embedding in the checkpoint, unpadded."""

    family: Family
    layers: int
    hidden: int
    ffn_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_positions: int
    norm_epsilon: float
    rope_theta: float
    tied_embeddings: bool
    experts: Experts | None = None

    @property
    def queries_per_group(self) -> int:
        return self.heads // self.kv_heads


def read_architecture(folder: str | Path) -> Architecture:
    """The architecture of a Hugging Face model folder.

    Raises DataError when `config.json` is missing, is not JSON, or names a family or feature we do not train.
    """
    path = Path(folder) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: not a Hugging Face model folder: it holds no config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON: {error}") from None
    return architecture_from_config(config, source=str(path))


def architecture_from_config(config: Mapping[str, Any], source: str = "config.json") -> Architecture:
    """The architecture that the content of a Hugging Face `config.json` describes. Raises DataError."""
    if not isinstance(config, Mapping):
        raise DataError(f"{source}: holds a {type(config).__name__}; a JSON object with model_type was expected")
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise DataError(
            f"{source}: model_type is {config.get('model_type')!r}; families that can be trained: {', '.join(FAMILIES)}"
        )
    faulty = _faulty(config, (*_NEEDED, *_NEEDED_BY_EXPERTS) if family.moe else _NEEDED)
    if faulty:
        raise DataError(f"{source}: {'; '.join(faulty)}")
    _refuse_unsupported(config, family, source)
    heads = config["num_attention_heads"]
    return Architecture(
        family=family,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        ffn_size=config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocabulary=config["vocab_size"],
        max_positions=config.get("max_position_embeddings", 2048),
        norm_epsilon=config.get("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(config),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        experts=_experts(config, source) if family.moe else None,
    )


_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size")
_NEEDED_BY_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size")


_SIZES = ("num_key_value_heads", "head_dim", "max_position_embeddings", "num_experts", "num_local_experts")
_NUMBERS = ("rms_norm_eps", "rope_theta")
_MAPPINGS = ("rope_parameters", "rope_scaling")


def _faulty(config: Mapping[str, Any], needed: Sequence[str]) -> list[str]:
    """What is not of its kind; keys outside `needed` may be absent or null."""
    given = {key: value for key, value in config.items() if value is not None}
    rope = given.get("rope_parameters", {})
    theta = rope.get("rope_theta", 1.0) if isinstance(rope, Mapping) else 1.0
    wrong = {
        "whole numbers above 0": [key for key in needed if not _is_size(config.get(key))]
        + [key for key in _SIZES if key in given and not _is_size(given[key])],
        "numbers above 0": [key for key in _NUMBERS if key in given and not _is_positive(given[key])]
        + ([] if _is_positive(theta) else ["rope_parameters"]),
        "JSON objects": [key for key in _MAPPINGS if not isinstance(given.get(key, {}), Mapping)],
    }
    return [
        f"{kind} were expected: {', '.join(f'{key} is {config.get(key)!r:.80}' for key in keys)}"
        for kind, keys in wrong.items()
        if keys
    ]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _rope_theta(config: Mapping[str, Any]) -> float:
    parameters = config.get("rope_parameters") or {}
    return float(parameters.get("rope_theta") or config.get("rope_theta") or 10_000.0)


def _experts(config: Mapping[str, Any], source: str) -> Experts:
    count = config.get("num_experts") or config.get("num_local_experts")
    if not count:
        raise DataError(f"{source}: a mixture of experts without num_experts")
    return Experts(
        count=count,
        per_token=config["num_experts_per_tok"],
        ffn_size=config["moe_intermediate_size"],
        normalize_weights=bool(config.get("norm_topk_prob", False)),
    )


def _refuse_unsupported(config: Mapping[str, Any], family: Family, source: str) -> None:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    faults = []
    if kind != "default":
        faults.append(f"rotary scaling {kind!r} (only plain rotary embeddings are trained)")
    if config.get("use_sliding_window"):
        faults.append("sliding-window attention")
    if config.get("hidden_act", "silu") != "silu":
        faults.append(f"activation {config['hidden_act']!r} (silu expected)")
    if family.moe and (config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1):
        faults.append("dense layers among mixture-of-experts layers")
    if family.model_type == "llama" and (config.get("attention_bias") or config.get("mlp_bias")):
        faults.append("biases in a llama model")
    if family.model_type.startswith("qwen3") and config.get("attention_bias"):
        faults.append("attention bias in a Qwen3 model")
    if faults:
        raise DataError(f"{source}: not supported: {'; '.join(faults)}")
