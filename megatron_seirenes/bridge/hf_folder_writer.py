"""Writing a Hugging Face folder: sharded safetensors, config, tokenizer; whole or not at all.

Everything is written into a sibling folder, flushed to the disk and renamed when whole, so that a reader never sees
half a model. A folder that exists is replaced only when every file in it is one that this module wrote (they are
listed in `seirenes_export.json`), or when told to overwrite. Nothing that could run as code is carried over.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from megatron_seirenes.bridge.hf_folder import INDEX_FILE, SINGLE_FILE
from megatron_seirenes.errors import UsageError

MARKER_FILE = "seirenes_export.json"
MAX_SHARD_BYTES = 4 * 2**30
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
)
CARRIED_FILES = (*TOKENIZER_FILES, "generation_config.json", "LICENSE", "NOTICE")
"""What goes along with weights from one folder into another, where it is there."""


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a configured name. Raises UsageError."""
    if name not in DTYPES:
        raise UsageError(f"dtype {name!r}: allowed are {', '.join(DTYPES)}")
    return DTYPES[name]


def carried_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """Those of `names` that `folder` holds."""
    return [folder / name for name in names if (folder / name).is_file()]


def write_hf_folder(
    out: str | Path,
    tensors: Iterable[tuple[str, torch.Tensor]],
    json_files: Mapping[str, Mapping[str, Any]],
    copied: Iterable[Path] = (),
    max_shard_bytes: int = MAX_SHARD_BYTES,
    overwrite: bool = False,
) -> None:
    """Writes `tensors`, `json_files` (name to content) and copies of the files `copied` as the folder `out`.

    Tensors are taken one at a time; no more than one shard is held in memory. Raises UsageError when `out` holds
    something that is not ours and `overwrite` is false.
    """
    out = Path(out).absolute()
    if not overwrite:
        _refuse_foreign(out)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for file in copied:
            shutil.copyfile(file, partial / file.name)
        for name, content in json_files.items():
            _write_json(partial / name, content)
        _write_shards(partial, tensors, max_shard_bytes)
        _write_json(partial / MARKER_FILE, {"files": sorted(file.name for file in partial.iterdir())})
        _flush(partial)
        _put_in_place(partial, out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _refuse_foreign(out: Path) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"{out}: is a file; a folder is to be written there: choose another path")
    present = {file.name for file in out.iterdir()}
    foreign = sorted(present - _files_of_ours(out))
    if foreign:
        raise UsageError(
            f"{out}: not overwritten, it holds files that no export of ours wrote ({', '.join(foreign[:5])}); "
            "choose another folder or remove them"
        )


def _files_of_ours(out: Path) -> set[str]:
    try:
        files = json.loads((out / MARKER_FILE).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {MARKER_FILE, *files}


def _write_shards(folder: Path, tensors: Iterable[tuple[str, torch.Tensor]], max_shard_bytes: int) -> None:
    """Fills numbered shards in order; names them `i-of-n`, with an index, once their number is known."""
    shards: list[list[str]] = []
    total = held = 0
    shard: dict[str, torch.Tensor] = {}

    def flush() -> None:
        path = folder / f"shard-{len(shards)}"
        path.touch()
        mode = path.stat().st_mode  # that of any new file; safetensors leaves one that its owner alone may read
        save_file(shard, path, metadata={"format": "pt"})
        path.chmod(mode)
        shards.append(list(shard))
        shard.clear()

    for name, tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if shard and held + size > max_shard_bytes:
            flush()
            held = 0
        shard[name] = tensor.detach().cpu().contiguous()
        held, total = held + size, total + size
    flush()
    _name_shards(folder, shards, total)


def _name_shards(folder: Path, shards: Sequence[Sequence[str]], total: int) -> None:
    if len(shards) == 1:
        (folder / "shard-0").rename(folder / SINGLE_FILE)
        return
    places: dict[str, str] = {}
    for number, names in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"shard-{number}").rename(folder / file)
        places.update(dict.fromkeys(names, file))
    _write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": places})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(folder: Path) -> None:
    """Brings the files of a folder, and the folder's own list of them, onto the disk."""
    for path in (*folder.iterdir(), folder):
        _flush_one(path)


def _flush_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(partial: Path, out: Path) -> None:
    aside = out.with_name(f".{out.name}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    if out.exists():
        out.rename(aside)
    partial.rename(out)
    _flush_one(out.parent)
    shutil.rmtree(aside, ignore_errors=True)
