"""A model that does not exist yet, as a Hugging Face folder: from here on it is a checkpoint like any other.

Weights are normal(0, initializer_std), norms one, biases zero. Every tensor is drawn in float32 from a generator
seeded by the run's seed and the tensor's name, so that it does not depend on what else is drawn, and the bfloat16
model is the rounded float32 one.

The vocabulary has exactly as many rows as the tokenizer has ids. Megatron pads its own embedding to its parallel size
and vLLM its own to its kernels' needs, so rounding up here would only add ids that nobody can decode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from megatron_seirenes.architecture import FAMILIES, architecture_from_config
from megatron_seirenes.bridge.hf_folder_writer import TOKENIZER_FILES, carried_files, torch_dtype, write_hf_folder
from megatron_seirenes.bridge.weight_map import HfTensor, build_weight_map
from megatron_seirenes.config.schema import NewModel
from megatron_seirenes.errors import ConfigError, DataError
from megatron_seirenes.seeds import stable_seed

# transformers and vLLM differ in whether these read `head_dim`, so it may only be what both derive.
DERIVED_HEAD_DIM = ("qwen2",)


def create_model_folder(new: NewModel, seed: int, dtype: str, out: str | Path) -> None:
    """Writes the model that `new` describes, with random weights of `seed`, as the folder `out`.

    Raises ConfigError for shapes that do not fit together, DataError for a tokenizer that cannot be read, UsageError
    for an unknown dtype or an `out` that holds something else.
    """
    _check_shape(new)
    number_format = torch_dtype(dtype)
    tokenizer = _read_tokenizer(Path(new.tokenizer))
    config = _config(new, tokenizer, dtype)
    tensors = build_weight_map(architecture_from_config(config)).tensors.values()
    write_hf_folder(
        out,
        _draw(tensors, seed, new.initializer_std, number_format),
        json_files={"config.json": config, "generation_config.json": _generation_config(tokenizer)},
        copied=carried_files(Path(new.tokenizer), TOKENIZER_FILES),
    )


def _draw(tensors: Iterable[HfTensor], seed: int, std: float, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    for tensor in tensors:
        yield tensor.name, _initial_value(tensor, seed, std).to(dtype)


def _initial_value(tensor: HfTensor, seed: int, std: float) -> torch.Tensor:
    """float32 [tensor.shape]."""
    if tensor.kind == "norm":
        return torch.ones(tensor.shape)
    if tensor.kind == "bias":
        return torch.zeros(tensor.shape)
    generator = torch.Generator().manual_seed(stable_seed("initial weights", seed, tensor.name))
    return torch.randn(tensor.shape, generator=generator) * std


def _check_shape(new: NewModel) -> None:
    faults = []
    if new.heads % new.kv_heads:
        faults.append(f"model.new.heads: {new.heads} is not a multiple of kv_heads {new.kv_heads}")
    if new.family in DERIVED_HEAD_DIM and new.heads * new.head_dim != new.hidden:
        faults.append(
            f"model.new.head_dim: {new.head_dim}, but family {new.family} needs hidden / heads = "
            f"{new.hidden} / {new.heads}"
        )
    experts = {key: getattr(new, key) for key in ("experts", "experts_per_token", "expert_ffn_size")}
    if FAMILIES[new.family].moe:
        faults += [f"model.new.{key}: needed by family {new.family}" for key, size in experts.items() if size is None]
        if new.experts and new.experts_per_token and new.experts_per_token > new.experts:
            faults.append(f"model.new.experts_per_token: {new.experts_per_token} is more than experts {new.experts}")
    else:
        faults += [
            f"model.new.{key}: {size}, but family {new.family} has no experts"
            for key, size in experts.items()
            if size is not None
        ]
    if faults:
        raise ConfigError("model.new", faults)


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    if not folder.is_dir():
        raise DataError(f"model.new.tokenizer: {folder}: no such folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise DataError(f"model.new.tokenizer: {folder}: cannot be read as a tokenizer: {error}") from None
    if tokenizer.eos_token_id is None:
        raise DataError(f"model.new.tokenizer: {folder}: names no eos_token, so no answer could ever end")
    return tokenizer


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
    }


def _config(new: NewModel, tokenizer: PreTrainedTokenizerBase, dtype: str) -> dict[str, Any]:
    """The content of `config.json`, by transformers' own class of the family."""
    shape: dict[str, Any] = {
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,
        "hidden_size": new.hidden,
        "intermediate_size": new.ffn_size,
        "num_hidden_layers": new.layers,
        "num_attention_heads": new.heads,
        "num_key_value_heads": new.kv_heads,
        "head_dim": new.head_dim,
        "max_position_embeddings": new.max_positions,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": new.rope_theta},
        "tie_word_embeddings": new.tied_embeddings,
        "initializer_range": new.initializer_std,
        "dtype": dtype,
        "architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[new.family]],
    }
    if FAMILIES[new.family].moe:
        shape |= {
            "num_experts": new.experts,
            "num_experts_per_tok": new.experts_per_token,
            "moe_intermediate_size": new.expert_ffn_size,
            "norm_topk_prob": True,
        }
    config = AutoConfig.for_model(new.family, **shape, **_special_ids(tokenizer))
    return config.to_dict()


def _generation_config(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    return GenerationConfig(**_special_ids(tokenizer)).to_diff_dict()
