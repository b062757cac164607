"""Writing a Megatron-Core distributed checkpoint out of a Hugging Face folder, one chunk in memory at a time.

The chunks are those that the ranks of a layout would write, each rank's in a file of its own, so that loading in that
layout reads whole chunks; any other layout loads it as well. Configuration and tokenizer are carried along in `hf/`.
Written beside its place, flushed and renamed when whole: killed half-way, it leaves nothing that looks like one.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from megatron_seirenes.architecture import Architecture, read_architecture
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.hf_folder_writer import CARRIED_FILES, _flush, carried_files
from megatron_seirenes.bridge.layout import Parameter, Shard
from megatron_seirenes.bridge.megatron_format import Chunk, Stored, chunks_of, extra_states, stored_as
from megatron_seirenes.bridge.plan_layouts import TrainingLayout
from megatron_seirenes.bridge.weight_map import HF_HEAD, build_weight_map
from megatron_seirenes.errors import DataError, UsageError

Progress = Callable[[int, int], None]
"""Told the bytes done and the bytes in all."""

HF_PART = "hf"


def write_megatron_checkpoint(
    source: str | Path, out: str | Path, training: TrainingLayout, progress: Progress | None = None
) -> None:
    """Writes the weights of the folder `source` as the checkpoint `out`, in chunks of `training`.

    Numbers keep their dtype. Raises DataError for a folder that does not fit its config.json, naming the tensors, and
    UsageError when `out` exists or sizes do not divide.
    """
    source, out = Path(source), Path(out).absolute()
    if out.exists():
        raise UsageError(f"{out}: exists already; name a new folder or remove it")
    architecture = read_architecture(source)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with HfFolder(source) as weights, ExitStack() as files:
            ignored = (HF_HEAD,) if architecture.tied_embeddings else ()
            weights.check(build_weight_map(architecture).tensors, ignored)
            writer = _Writer(partial, files)
            _write_weights(writer, weights, architecture, training, progress or (lambda done, whole: None))
            for key in (*extra_states(architecture), "common_state/shard_0_1"):
                writer.add_object(key, {} if key.startswith("common_state") else None)
        writer.finish()
        (partial / HF_PART).mkdir()
        for file in carried_files(source, ("config.json", *CARRIED_FILES)):
            shutil.copyfile(file, partial / HF_PART / file.name)
        _flush(partial / HF_PART)
        _flush(partial)
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_weights(
    writer: _Writer, weights: HfFolder, architecture: Architecture, training: TrainingLayout, progress: Progress
) -> None:
    padded = -(-architecture.vocabulary // training.tensor) * training.tensor
    parameters = [one for one in build_weight_map(architecture, padded).parameters.values() if not one.replica]
    whole = sum(torch.Size(one.shape).numel() for one in parameters)
    done = 0
    for parameter in parameters:
        stored = stored_as(parameter.name, architecture)
        for rank, shard in _owners(parameter, stored, architecture, training):
            for chunk in chunks_of(parameter, shard):
                writer.add_chunk(rank, parameter, stored, chunk, _assembled(chunk, weights, parameter.name))
        done += torch.Size(parameter.shape).numel()
        progress(done, whole)


def _owners(
    parameter: Parameter, stored: Stored, architecture: Architecture, training: TrainingLayout
) -> Iterator[tuple[int, Shard]]:
    """The first rank that holds each shard of a parameter, and its place."""
    layer = stored.index[0] if stored.index else 0
    stage = training.stage(layer, architecture.layers)
    if not stored.index:
        stage = 0 if parameter.name.startswith("embedding") else training.pipeline - 1
    sizes = {"tensor": training.tensor, "expert_tensor": training.expert_tensor, None: 1}
    for rank in range(sizes[parameter.group]):
        if len(stored.index) == 2 and architecture.experts is not None:
            owner = training.expert_owner(stored.index[1], architecture.experts.count)
            ranks = training.expert_ranks(stage, rank, owner)
        else:
            ranks = training.dense_ranks(stage, rank if parameter.group else None)
        yield int(ranks[0]), Shard(rank, training.tensor, rank, training.expert_tensor)


def _assembled(chunk: Chunk, weights: HfFolder, name: str) -> torch.Tensor:
    """The numbers of a chunk; rows that only pad the vocabulary are zeros."""
    pieces = [(copy, weights.read(copy.hf_name, copy.hf_index)) for copy in chunk.copies]
    dtypes = {piece.dtype for _, piece in pieces}
    if len(dtypes) > 1:
        raise DataError(f"{name}: is made of tensors of several dtypes: {', '.join(sorted(map(str, dtypes)))}")
    if not pieces:
        raise UsageError(f"{name}: a shard would hold padding only; choose a smaller tensor parallel size")
    if len(pieces) == 1 and tuple(pieces[0][1].shape) == chunk.shape:
        return pieces[0][1]
    whole = torch.zeros(chunk.shape, dtype=dtypes.pop())
    for copy, piece in pieces:
        whole[copy.local_index].copy_(piece)
    return whole


class _Writer:
    """Appends chunks to the files of their ranks, and remembers where they lie."""

    def __init__(self, folder: Path, files: ExitStack):
        self.folder = folder
        self._files = files
        self._open: dict[int, BinaryIO] = {}
        self._tensors: dict[str, TensorStorageMetadata] = {}
        self._objects: dict[str, BytesStorageMetadata] = {}
        self._places: dict[MetadataIndex, _StorageInfo] = {}

    def add_chunk(self, rank: int, parameter: Parameter, stored: Stored, chunk: Chunk, numbers: torch.Tensor) -> None:
        leading = (1,) * len(stored.index)
        place = self._append(rank, numbers.reshape(*leading, *chunk.shape).contiguous())
        offset = torch.Size((*stored.index, *chunk.offset))
        for key in stored.keys:
            tensor = self._tensors.get(key)
            if tensor is None:
                size = torch.Size((*stored.lengths, *parameter.shape))
                tensor = TensorStorageMetadata(TensorProperties(dtype=numbers.dtype), size, [])
                self._tensors[key] = tensor
            if tensor.properties.dtype != numbers.dtype:
                raise DataError(f"{parameter.name}: is {numbers.dtype}; other layers are {tensor.properties.dtype}")
            tensor.chunks.append(ChunkStorageMetadata(offset, torch.Size((*leading, *chunk.shape))))
            self._places[MetadataIndex(key, offset)] = place

    def add_object(self, key: str, value: object) -> None:
        self._objects[key] = BytesStorageMetadata()
        self._places[MetadataIndex(key)] = self._append(0, [value])

    def finish(self) -> None:
        """Writes what makes the files a checkpoint; after the files are closed."""
        metadata = Metadata({**self._tensors, **self._objects}, storage_data=self._places, storage_meta=StorageMeta())
        (self.folder / ".metadata").write_bytes(pickle.dumps(metadata))
        backend = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
        (self.folder / "metadata.json").write_text(json.dumps(backend), encoding="utf-8")

    def _append(self, rank: int, value: object) -> _StorageInfo:
        name = f"__{rank}_0.distcp"
        if rank not in self._open:
            self._open[rank] = self._files.enter_context((self.folder / name).open("wb"))
        file = self._open[rank]
        start = file.tell()
        if isinstance(value, torch.Tensor):
            torch.save(value.clone() if value.untyped_storage().nbytes() != value.nbytes else value, file)
        else:
            buffer = io.BytesIO()
            torch.save(value, buffer)
            file.write(buffer.getbuffer())
        return _StorageInfo(name, start, file.tell() - start)
