"""Small random models of every family, as transformers saves them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE = {
    "vocab_size": 98,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
FAMILIES = [("llama", True), ("qwen2", False), ("qwen3", True), ("qwen3_moe", False)]


def saved_model(family: str, tied: bool, folder: Path, dtype: torch.dtype = torch.bfloat16, **changes: int) -> Path:
    """Norms and biases differ from 1 and 0, or a wrong place would go unseen."""
    more = (EXPERTS if family == "qwen3_moe" else {}) | ({} if family == "qwen2" else {"head_dim": 16})
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **SHAPE | more | changes, tie_word_embeddings=tied)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.to(dtype).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder
