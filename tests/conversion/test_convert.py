"""Round trips bit for bit, what is refused, and what an interrupted conversion leaves behind."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import FAMILIES, saved_model

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.digest import digest
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.bridge.megatron_load import load_megatron_weights
from megatron_seirenes.bridge.megatron_reader import MegatronCheckpoint
from megatron_seirenes.bridge.plan_layouts import TrainingLayout
from megatron_seirenes.config.schema import Config
from megatron_seirenes.conversion import convert
from megatron_seirenes.conversion.convert import to_hf, to_megatron
from megatron_seirenes.conversion.verify import compare_tensors, hf_scores, megatron_scores
from megatron_seirenes.errors import DataError, UsageError

LAYOUTS = [
    TrainingLayout(1),
    TrainingLayout(4, tensor=2, pipeline=2, expert_tensor=2),
    TrainingLayout(8, pipeline=2, virtual_pipeline=2, expert=4),
    TrainingLayout(4, tensor=1, expert=2, expert_tensor=2),
]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved_model("qwen3", False, tmp_path / "source")


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
def test_there_and_back_bit_for_bit(family: str, tied: bool, layout: TrainingLayout, tmp_path: Path) -> None:
    source = saved_model(family, tied, tmp_path / "source")
    told: list[tuple[int, int]] = []
    to_megatron(source, tmp_path / "checkpoint", layout, lambda done, whole: told.append((done, whole)))
    to_hf(tmp_path / "checkpoint", tmp_path / "back", progress=lambda *step: told.append(step), max_shard_bytes=20_000)
    assert digest(weights(tmp_path / "back").items()) == digest(weights(source).items())
    assert (tmp_path / "back" / "model.safetensors.index.json").exists()
    assert (tmp_path / "back" / "tokenizer.json").read_text() == "{}"
    assert json.loads((tmp_path / "back/config.json").read_text()) == json.loads((source / "config.json").read_text())
    assert compare_tensors(source, tmp_path / "checkpoint") == ()
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_megatron_itself_reads_it_and_says_what_transformers_says(family: str, tied: bool, tmp_path: Path) -> None:
    """Loaded by Megatron-Core in another layout than the one that it was written for."""
    source = saved_model(family, tied, tmp_path / "source", torch.float32)
    to_megatron(source, tmp_path / "checkpoint", LAYOUTS[1])
    sequences = [(5, 17, 3, 88, 96, 0, 41), (7, 7, 23)]
    ours, theirs = megatron_scores(source, tmp_path / "checkpoint", sequences), hf_scores(source, sequences)
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)


def test_what_an_actor_saves_becomes_a_folder(tmp_path: Path) -> None:
    """A snapshot of a run: weights beside an optimizer, written by Megatron-Core."""
    from megatron_seirenes.actor.actor import Actor
    from megatron_seirenes.device.distributed import start_distributed, stop_distributed

    source = saved_model("qwen3_moe", False, tmp_path / "source")
    config = Config.model_validate({"model": {"dtype": "bfloat16"}})
    world = start_distributed(config.parallel)
    try:
        actor = Actor(read_architecture(source), config, world.backend)
        actor.load_hf(source)
        actor.save(tmp_path / "snapshot")
        with pytest.raises(DataError, match="carries no hf/config"):
            to_hf(tmp_path / "snapshot", tmp_path / "back")
        to_hf(tmp_path / "snapshot", tmp_path / "back", source)
        assert digest(weights(tmp_path / "back").items()) == digest(weights(source).items())
        to_megatron(source, tmp_path / "checkpoint", LAYOUTS[2])
        for module in actor.modules:
            for parameter in module.parameters():
                parameter.data.zero_()
        with world.backend.actor_scope():
            load_megatron_weights(actor.modules, tmp_path / "checkpoint")
        assert digest(hf_tensors(actor.modules, actor.architecture)) == digest(weights(source).items())
    finally:
        stop_distributed()


def test_a_folder_that_does_not_fit_is_refused_by_tensor(source: Path, tmp_path: Path) -> None:
    file = source / "model.safetensors"
    whole = load_file(file)

    def refused(changed: dict[str, torch.Tensor], message: str) -> None:
        save_file(changed, file, metadata={"format": "pt"})
        with pytest.raises(DataError, match=message):
            to_megatron(source, tmp_path / "out", TrainingLayout(1))
        assert not list(tmp_path.glob("*out*"))

    name = "model.layers.1.mlp.up_proj.weight"
    refused({key: value for key, value in whole.items() if key != name}, rf"missing: {name}")
    refused(whole | {"model.layers.1.mlp.gate.weight": whole[name].clone()}, r"unexpected: model\.layers\.1\.mlp\.gate")
    refused(whole | {name: whole[name][1:].clone()}, rf"{name} in model.safetensors has shape \(47, 32\)")
    refused(whole | {name: whole[name].float()}, "linear_fc1.weight: is torch.float32; other layers are torch.bfloat16")
    key = "model.layers.1.self_attn.k_proj.weight"
    refused(whole | {key: whole[key].float()}, "linear_qkv.weight: is made of tensors of several dtypes")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="damaged or truncated"):
        to_megatron(source, tmp_path / "out", TrainingLayout(1))


def test_layouts_that_do_not_divide_are_refused(source: Path, tmp_path: Path) -> None:
    for layout, message in (
        (TrainingLayout(3, pipeline=3), "4 layers cannot be cut into 3"),
        (TrainingLayout(5, tensor=5, expert_tensor=5), "cannot be cut into 5 equal shards"),
    ):
        with pytest.raises(UsageError, match=message):
            to_megatron(source, tmp_path / "out", layout)
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        to_megatron(source, tmp_path / "there", TrainingLayout(1))


def test_damaged_checkpoints_are_refused_by_key(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "checkpoint"
    to_megatron(source, out, TrainingLayout(2, tensor=2, expert_tensor=2))
    index = pickle.loads((out / ".metadata").read_bytes())
    key = "decoder.layers.mlp.linear_fc2.weight"

    def refused(message: str) -> None:
        (out / ".metadata").write_bytes(pickle.dumps(index))
        with pytest.raises(DataError, match=message):
            to_hf(out, tmp_path / "back")
        assert not list(tmp_path.glob("*back*"))

    entry = index.state_dict_metadata.pop(key)
    refused(rf"{key} is missing")
    index.state_dict_metadata[key.replace("mlp", "mlp.single_grouped")] = entry
    refused(r"mlp\.single_grouped\.linear_fc2\.weight is not a weight of a qwen3 model")
    del index.state_dict_metadata[key.replace("mlp", "mlp.single_grouped")]
    index.state_dict_metadata[key] = entry
    chunk = entry.chunks.pop()
    refused(rf"{key} is not whole")
    entry.chunks.append(chunk)
    (out / ".metadata").write_bytes(pickle.dumps(index))
    shard = out / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"__1_0\.distcp: .* damaged or truncated"):
        to_hf(out, tmp_path / "back")
    (out / "metadata.json").unlink()
    with pytest.raises(DataError, match="not a complete Megatron checkpoint"):
        to_hf(out, tmp_path / "back")


def test_an_index_that_would_run_code_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "checkpoint"
    to_megatron(source, out, TrainingLayout(1))
    (out / ".metadata").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataError, match=r"it asks for os\.system"):
        MegatronCheckpoint(out, read_architecture(source))


def test_an_interrupted_conversion_leaves_nothing_that_looks_whole(source: Path, tmp_path: Path) -> None:
    def interrupt(done: int, whole: int) -> None:
        if done > whole / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_megatron(source, tmp_path / "out", TrainingLayout(1), interrupt)
    to_megatron(source, tmp_path / "whole", TrainingLayout(1))
    with pytest.raises(KeyboardInterrupt):
        to_hf(tmp_path / "whole", tmp_path / "out", progress=interrupt)
    assert not list(tmp_path.glob("*out*"))
    to_megatron(source, tmp_path / "out", TrainingLayout(1))
    assert compare_tensors(source, tmp_path / "out") == ()


def test_a_changed_number_is_found(source: Path, tmp_path: Path) -> None:
    to_megatron(source, tmp_path / "checkpoint", TrainingLayout(1))
    file = source / "model.safetensors"
    changed = load_file(file)
    changed["model.layers.3.self_attn.k_proj.weight"][-1, -1] += 1
    save_file(changed, file, metadata={"format": "pt"})
    assert compare_tensors(source, tmp_path / "checkpoint") == ("model.layers.3.self_attn.k_proj.weight",)
    assert convert.described_by(tmp_path / "checkpoint", None) == tmp_path / "checkpoint" / "hf"
