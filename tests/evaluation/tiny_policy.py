"""A policy made in a moment: 2 layers, random weights, the 32 words of the small world and its chat template."""

from __future__ import annotations

from pathlib import Path

from megatron_seirenes.quickstart.tokenizer import VOCABULARY, make_tokenizer


def make_policy(folder: Path) -> Path:
    """A Hugging Face folder; returns it."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shape = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(shape).save_pretrained(folder)
    make_tokenizer(folder)
    return folder
