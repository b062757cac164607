"""Hugging Face folder to Megatron-Core checkpoint and back, streaming and bit for bit.

Both directions keep every number's dtype, hold one tensor (and one output shard) in memory, write beside their place
and rename when whole. The weight map is the only thing that knows how the two forms correspond.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import torch

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.hf_folder_writer import CARRIED_FILES, MAX_SHARD_BYTES, carried_files, write_hf_folder
from megatron_seirenes.bridge.megatron_reader import MegatronCheckpoint
from megatron_seirenes.bridge.megatron_writer import HF_PART, Progress, write_megatron_checkpoint
from megatron_seirenes.bridge.plan_layouts import TrainingLayout
from megatron_seirenes.errors import DataError


def to_megatron(source: Path, out: Path, training: TrainingLayout, progress: Progress | None = None) -> None:
    """Raises DataError naming file and tensor, UsageError when `out` exists or a size does not divide."""
    write_megatron_checkpoint(source, out, training, progress)


def to_hf(
    checkpoint: Path,
    out: Path,
    source: Path | None = None,
    progress: Progress | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes the weights of a Megatron-Core checkpoint as a Hugging Face folder.

    `source` gives configuration and tokenizer: by default what `to_megatron` carried along. Raises DataError naming key
    and file.
    """
    source = described_by(checkpoint, source)
    opened = MegatronCheckpoint(checkpoint, read_architecture(source))
    tensors = opened.tensors()
    if progress is not None:
        whole = sum(math.prod(tensor.shape) for tensor in opened.weight_map.tensors.values())
        tensors = _counted(tensors, progress, whole)
    write_hf_folder(
        out,
        tensors,
        json_files={"config.json": json.loads((source / "config.json").read_text(encoding="utf-8"))},
        copied=carried_files(source, CARRIED_FILES),
        max_shard_bytes=max_shard_bytes,
    )


def described_by(checkpoint: Path, source: Path | None) -> Path:
    """The folder whose config.json says what the checkpoint holds. Raises DataError."""
    if source is not None:
        return source
    carried = checkpoint / HF_PART
    if not (carried / "config.json").is_file():
        raise DataError(
            f"{checkpoint}: carries no {HF_PART}/config.json; name the model's Hugging Face folder (--source)"
        )
    return carried


def _counted(
    tensors: Iterator[tuple[str, torch.Tensor]], progress: Progress, whole: int
) -> Iterator[tuple[str, torch.Tensor]]:
    done = 0
    for name, tensor in tensors:
        yield name, tensor
        done += tensor.numel()
        progress(done, whole)
