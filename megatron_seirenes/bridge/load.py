"""Filling this rank's Megatron parameters from a Hugging Face folder, reading only the regions the rank holds.

Knows no optimizer: an optimizer that keeps its own master weights must copy them from the parameters afterwards.
The whole folder is checked against the architecture (by its headers) before the first number is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.live import BoundParameter, bind, this_rank
from megatron_seirenes.bridge.weight_map import HF_EMBEDDING, HF_HEAD
from megatron_seirenes.errors import DataError


def load_hf_folder(modules: Sequence[torch.nn.Module], architecture: Architecture, folder: str | Path) -> None:
    """Copies the weights in `folder` into the parameters of `modules`, this rank's GPTModel chunks.

    Values are converted to each parameter's dtype; padded vocabulary rows become zero. Raises DataError when folder,
    architecture and model do not fit together, naming the file, tensor or parameter.
    """
    weight_map, bound = bind(modules, architecture, this_rank())
    with HfFolder(folder) as source:
        source.check(weight_map.tensors, ignored=(HF_HEAD,) if architecture.tied_embeddings else ())
        for parameter in bound:
            _fill(parameter, source)
            if architecture.tied_embeddings and HF_HEAD in source:
                _check_tied(parameter, source)


def _fill(bound: BoundParameter, source: HfFolder) -> None:
    if bound.parameter.padded:
        bound.tensor.zero_()
    for copy in bound.copies:
        bound.tensor[copy.local_index].copy_(source.read(copy.hf_name, copy.hf_index))


def _check_tied(bound: BoundParameter, source: HfFolder) -> None:
    """A tied checkpoint may carry its head a second time; one that differs would be silently dropped."""
    for copy in bound.copies:
        if copy.hf_name != HF_EMBEDDING:
            continue
        if not torch.equal(source.read(HF_EMBEDDING, copy.hf_index), source.read(HF_HEAD, copy.hf_index)):
            raise DataError(
                f"{source.folder}: config.json ties the embeddings, but {HF_HEAD} differs from {HF_EMBEDDING}"
            )
