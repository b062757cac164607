"""Folders on disk: what is read, what is refused by name, and that a write is whole or not there at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.hf_folder_writer import write_hf_folder
from megatron_seirenes.bridge.weight_map import HfTensor
from megatron_seirenes.errors import DataError, UsageError

TENSORS = {"a": torch.arange(12.0).view(4, 3), "b": torch.arange(6.0).view(2, 3), "c": torch.ones(5)}
SPECS = {name: HfTensor(name, tuple(tensor.shape), "matrix") for name, tensor in TENSORS.items()}


def written(out: Path, **options: object) -> Path:
    write_hf_folder(out, TENSORS.items(), {"config.json": {"x": 1}}, **options)
    return out


def read_all(folder: Path) -> dict[str, torch.Tensor]:
    with HfFolder(folder) as source:
        source.check(SPECS)
        return {name: source.read(name, tuple(slice(0, size) for size in spec.shape)) for name, spec in SPECS.items()}


@pytest.mark.parametrize(("max_shard_bytes", "files"), [(2**20, 1), (72, 2), (1, 3)])
def test_written_folder_reads_back(tmp_path: Path, max_shard_bytes: int, files: int) -> None:
    folder = written(tmp_path / "out", max_shard_bytes=max_shard_bytes)
    assert len(list(folder.glob("*.safetensors"))) == files
    assert (folder / "model.safetensors.index.json").exists() == (files > 1)
    assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in read_all(folder).items())


def test_weights_may_be_read_by_whom_the_other_files_may(tmp_path: Path) -> None:
    modes = {path.stat().st_mode & 0o777 for path in written(tmp_path / "out", max_shard_bytes=72).iterdir()}
    assert len(modes) == 1


def test_a_region_is_read_alone(tmp_path: Path) -> None:
    with HfFolder(written(tmp_path / "out")) as source:
        assert source.read("a", (slice(1, 3), slice(2, 3))).tolist() == [[5.0], [8.0]]


def test_views_of_one_storage_are_written_apart(tmp_path: Path) -> None:
    fused = torch.arange(8.0).view(4, 2)
    write_hf_folder(tmp_path / "out", {"gate": fused[:2], "up": fused[2:]}.items(), {})
    with HfFolder(tmp_path / "out") as source:
        assert source.read("up", (slice(0, 2), slice(0, 2))).tolist() == [[4.0, 5.0], [6.0, 7.0]]


def test_every_misfit_is_reported_at_once(tmp_path: Path) -> None:
    specs = SPECS | {"a": HfTensor("a", (4, 4), "matrix"), "d": HfTensor("d", (1,), "norm")}
    del specs["b"]
    with HfFolder(written(tmp_path / "out")) as source, pytest.raises(DataError) as caught:
        source.check(specs)
    message = str(caught.value)
    assert "missing: d" in message
    assert "unexpected: b" in message
    assert "a in model.safetensors has shape (4, 3); config.json gives (4, 4)" in message


def test_quantised_tensors_are_refused(tmp_path: Path) -> None:
    save_file({"c": torch.ones(5, dtype=torch.int8)}, tmp_path / "model.safetensors")
    with HfFolder(tmp_path) as source, pytest.raises(DataError, match=r"c in model\.safetensors is I8"):
        source.check({"c": SPECS["c"]})


def test_truncated_file_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "out") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"model\.safetensors: damaged or truncated"):
        HfFolder(file.parent)


def test_index_naming_an_absent_file_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", max_shard_bytes=1)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(DataError, match=r"model-00002-of-00003\.safetensors: named by .*index\.json, but not there"):
        HfFolder(folder)


def edited_index(folder: Path, **places: object) -> Path:
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"] |= places
    index.write_text(json.dumps(content))
    return folder


def test_index_placing_a_tensor_wrongly_is_named(tmp_path: Path) -> None:
    folder = edited_index(written(tmp_path / "out", max_shard_bytes=1), a="model-00002-of-00003.safetensors")
    with pytest.raises(DataError, match=r"model-00002-of-00003\.safetensors: .* lacks: a"):
        HfFolder(folder)


def test_index_may_not_leave_the_folder(tmp_path: Path) -> None:
    folder = edited_index(written(tmp_path / "out", max_shard_bytes=1), a="../elsewhere.safetensors")
    with pytest.raises(DataError, match="only files of the same folder"):
        HfFolder(folder)


def test_folders_without_readable_weights_say_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such model folder"):
        HfFolder(tmp_path / "absent")
    with pytest.raises(DataError, match="holds no weights"):
        HfFolder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(DataError, match="pickled weights only, which can run code"):
        HfFolder(tmp_path)
    save_file(TENSORS, tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(DataError, match=r"neither model\.safetensors nor"):
        HfFolder(tmp_path)
    save_file(TENSORS, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(DataError, match="holds both"):
        HfFolder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match="not an index of weights"):
        HfFolder(tmp_path)


def test_own_export_is_replaced_and_foreign_files_are_not(tmp_path: Path) -> None:
    out = written(tmp_path / "out", max_shard_bytes=1)
    written(out)
    assert sorted(file.name for file in out.iterdir()) == ["config.json", "model.safetensors", "seirenes_export.json"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not overwritten.*notes\.txt"):
        written(out)
    assert (out / "notes.txt").read_text() == "mine"
    written(out, overwrite=True)
    assert not (out / "notes.txt").exists()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    out = written(tmp_path / "out")

    def failing() -> object:
        yield "a", TENSORS["a"] + 1
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        write_hf_folder(out, failing(), {})
    assert torch.equal(read_all(out)["a"], TENSORS["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
