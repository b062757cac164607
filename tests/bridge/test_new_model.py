"""New models are folders that transformers opens, drawn the same way every time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from megatron_seirenes.architecture import FAMILIES, read_architecture
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.new_model import create_model_folder
from megatron_seirenes.bridge.weight_map import build_weight_map
from megatron_seirenes.config.schema import NewModel
from megatron_seirenes.errors import ConfigError, DataError, UsageError


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(50))]
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    wrapped.chat_template = "{{ messages[0]['content'] }}"
    wrapped.save_pretrained(folder)
    return folder


def shape(family: str, tokenizer: Path, **changes: object) -> NewModel:
    experts = {"experts": 4, "experts_per_token": 2, "expert_ffn_size": 24} if FAMILIES[family].moe else {}
    base = {
        "family": family,
        "tokenizer": str(tokenizer),
        "layers": 2,
        "hidden": 32,
        "ffn_size": 48,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8 if family == "qwen2" else 16,
        "max_positions": 64,
    }
    return NewModel(**base | experts | changes)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_transformers_opens_it_with_every_weight(
    family: str, tied: bool, tokenizer_folder: Path, tmp_path: Path
) -> None:
    new = shape(family, tokenizer_folder, tied_embeddings=tied, rope_theta=5000.0)
    create_model_folder(new, seed=3, dtype="float32", out=tmp_path / "new")
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "new", output_loading_info=True)
    assert not any(report.values())
    assert model.config.model_type == family
    assert model.config.vocab_size == 53
    assert torch.equal(model.model.norm.weight, torch.ones(32))
    assert 0.015 < model.model.embed_tokens.weight.std() < 0.025
    architecture = read_architecture(tmp_path / "new")
    assert (architecture.head_dim, architecture.rope_theta, architecture.tied_embeddings) == (
        new.head_dim,
        5000.0,
        tied,
    )
    with HfFolder(tmp_path / "new") as folder:
        folder.check(build_weight_map(architecture).tensors)


def test_tokenizer_and_stop_ids_come_along(tokenizer_folder: Path, tmp_path: Path) -> None:
    create_model_folder(shape("qwen3", tokenizer_folder), seed=0, dtype="bfloat16", out=tmp_path / "new")
    generation = GenerationConfig.from_pretrained(tmp_path / "new")
    assert (generation.eos_token_id, generation.pad_token_id) == (1, 0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert tokenizer("w3 w4").input_ids == [6, 7]
    assert tokenizer.chat_template == "{{ messages[0]['content'] }}"
    assert json.loads((tmp_path / "new" / "config.json").read_text())["dtype"] == "bfloat16"


def whole(folder: Path, name: str) -> torch.Tensor:
    with HfFolder(folder) as source:
        return source.read(name, (slice(None), slice(None)))


def test_draws_depend_on_seed_and_name_alone(tokenizer_folder: Path, tmp_path: Path) -> None:
    def made(name: str, seed: int = 0, dtype: str = "float32", **changes: object) -> Path:
        create_model_folder(shape("qwen3", tokenizer_folder, **changes), seed, dtype, tmp_path / name)
        return tmp_path / name

    projection = "model.layers.0.mlp.down_proj.weight"
    base = whole(made("base"), projection)
    torch.manual_seed(1)
    assert torch.equal(whole(made("deeper", layers=3, tied_embeddings=True), projection), base)
    assert torch.equal(whole(made("rounded", dtype="bfloat16"), projection), base.bfloat16())
    assert not torch.equal(whole(made("other", seed=1), projection), base)
    assert not torch.equal(whole(tmp_path / "base", "model.layers.1.mlp.down_proj.weight"), base)


def test_shapes_that_cannot_be_are_refused_with_every_fault(tokenizer_folder: Path, tmp_path: Path) -> None:
    def faults(new: NewModel) -> str:
        with pytest.raises(ConfigError) as caught:
            create_model_folder(new, 0, "float32", tmp_path / "new")
        assert not (tmp_path / "new").exists()
        return str(caught.value)

    message = faults(shape("qwen3_moe", tokenizer_folder, kv_heads=3, experts=None, expert_ffn_size=None))
    assert "kv_heads 3" in message
    assert "model.new.experts: needed" in message
    assert "model.new.expert_ffn_size: needed" in message
    assert "has no experts" in faults(shape("qwen3", tokenizer_folder, experts=4))
    assert "more than experts 4" in faults(shape("qwen3_moe", tokenizer_folder, experts_per_token=5))
    assert "hidden / heads = 32 / 4" in faults(shape("qwen2", tokenizer_folder, head_dim=16))


def test_tokenizers_that_cannot_serve_are_refused(tokenizer_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model\.new\.tokenizer: .*absent: no such folder"):
        create_model_folder(shape("qwen3", tmp_path / "absent"), 0, "float32", tmp_path / "new")
    endless = AutoTokenizer.from_pretrained(tokenizer_folder)
    endless.eos_token = None
    endless.save_pretrained(tmp_path / "endless")
    with pytest.raises(DataError, match="names no eos_token"):
        create_model_folder(shape("qwen3", tmp_path / "endless"), 0, "float32", tmp_path / "new")
    with pytest.raises(UsageError, match="'float16': allowed are bfloat16, float32"):
        create_model_folder(shape("qwen3", tokenizer_folder), 0, "float16", tmp_path / "new")
