"""Writing the live model as a Hugging Face folder that transformers and vLLM open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.bridge.hf_folder_writer import CARRIED_FILES, carried_files, torch_dtype, write_hf_folder
from megatron_seirenes.errors import DataError

# What a source's config.json says about files or number formats that an export does not have.
DROPPED_CONFIG_KEYS = ("auto_map", "quantization_config", "torch_dtype")


def export_hf_folder(
    modules: Sequence[torch.nn.Module],
    architecture: Architecture,
    out: str | Path,
    source: str | Path,
    dtype: str,
    overwrite: bool = False,
) -> None:
    """Writes the weights of `modules` to `out`, with the configuration and tokenizer of the folder `source`.

    Collective; rank 0 writes. Raises UsageError for an unknown dtype or an `out` that is not ours,
    DataError for a source without a readable config.json, and as `hf_tensors` does.
    """
    tensors = hf_tensors(modules, architecture, dtype=torch_dtype(dtype))
    if dist.is_initialized() and dist.get_rank() != 0:
        for _ in tensors:
            pass
        return
    source = Path(source)
    write_hf_folder(
        out,
        tensors,
        json_files={"config.json": _exported_config(source, dtype)},
        copied=carried_files(source, CARRIED_FILES),
        overwrite=overwrite,
    )


def _exported_config(source: Path, dtype: str) -> dict[str, Any]:
    path = source / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON: {error}") from None
    return {key: value for key, value in config.items() if key not in DROPPED_CONFIG_KEYS} | {"dtype": dtype}
