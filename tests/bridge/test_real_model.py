"""The map against the real thing: Hugging Face weights in Megatron-Core models must give Hugging Face's numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.sequences import TokenSequence
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.digest import digest
from megatron_seirenes.bridge.export import export_hf_folder
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.device.distributed import start_distributed, stop_distributed
from megatron_seirenes.errors import DataError

MODELS = [("llama", True), ("qwen2", False), ("qwen3", False), ("qwen3", True), ("qwen3_moe", False)]
SHAPE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
SEQUENCE = TokenSequence(prompt_ids=(5, 17, 3, 88), response_ids=(96, 0, 41, 7, 7, 23, 60))


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    yield start_distributed(Config().parallel).backend
    stop_distributed()


def reference(family: str, tied: bool, folder: Path) -> torch.nn.Module:
    """A random model, saved by transformers; norms and biases differ from 1 and 0, or a wrong place would go unseen."""
    changes = (EXPERTS if family == "qwen3_moe" else {}) | ({} if family == "qwen2" else {"head_dim": 16})
    config = AutoConfig.for_model(family, **SHAPE | changes, tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return model


def hf_logprobs(model: torch.nn.Module) -> torch.Tensor:
    ids = torch.tensor([SEQUENCE.prompt_ids + SEQUENCE.response_ids])
    with torch.no_grad():
        scores = model(ids).logits[0].log_softmax(-1)
    start = len(SEQUENCE.prompt_ids)
    return scores[start - 1 : -1].gather(-1, ids[0, start:, None])[:, 0]


def loaded_actor(folder: Path, backend: Backend) -> Actor:
    actor = Actor(read_architecture(folder), Config.model_validate({"model": {"dtype": "float32"}}), backend)
    actor.load_hf(folder)
    return actor


@pytest.mark.parametrize(("family", "tied"), MODELS)
def test_through_megatron_and_back(family: str, tied: bool, backend: Backend, tmp_path: Path) -> None:
    model = reference(family, tied, tmp_path / "source")
    actor = loaded_actor(tmp_path / "source", backend)
    (scored,) = actor.logprobs([SEQUENCE])
    torch.testing.assert_close(torch.tensor(scored.logprobs), hf_logprobs(model), atol=1e-5, rtol=1e-5)

    export_hf_folder(actor.modules, actor.architecture, tmp_path / "out", tmp_path / "source", "float32")
    written, source = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "source"))
    assert digest(written.items()) == digest(source.items())
    reopened, report = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(hf_logprobs(reopened.eval()), hf_logprobs(model))

    again = loaded_actor(tmp_path / "out", backend)
    assert digest(hf_tensors(again.modules, again.architecture)) == digest(
        hf_tensors(actor.modules, actor.architecture)
    )


def test_export_rounds_and_carries_what_belongs_to_the_model(backend: Backend, tmp_path: Path) -> None:
    source = tmp_path / "source"
    reference("qwen3", False, source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "modeling.Model"}}))
    (source / "modeling.py").write_text("raise SystemExit")
    (source / "tokenizer.json").write_text("{}")
    actor = loaded_actor(source, backend)
    export_hf_folder(actor.modules, actor.architecture, tmp_path / "out", source, "bfloat16")
    assert not (tmp_path / "out" / "modeling.py").exists()
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert (tmp_path / "out" / "generation_config.json").exists()
    exported = json.loads((tmp_path / "out" / "config.json").read_text())
    assert exported == config | {"dtype": "bfloat16"}
    weights = load_file(tmp_path / "source" / "model.safetensors")
    rounded = {name: tensor.bfloat16() for name, tensor in weights.items()}
    assert digest(load_file(tmp_path / "out" / "model.safetensors").items()) == digest(rounded.items())


def test_a_folder_of_another_model_is_refused(backend: Backend, tmp_path: Path) -> None:
    reference("qwen3", False, tmp_path / "qwen3")
    reference("llama", False, tmp_path / "llama")
    actor = loaded_actor(tmp_path / "qwen3", backend)
    with pytest.raises(DataError, match=r"missing: model\.layers\.0\.self_attn\.q_norm\.weight"):
        actor.load_hf(tmp_path / "llama")
