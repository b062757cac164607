"""Whether what an engine was given is what an exported folder holds, bit for bit, without gathering either.

Each rank digests the regions that its engine needs: as they pass by on the way into the engine, and out of the folder
by slices. Equal digests on every rank mean equal weights; which tensor differs is found by `differing`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from megatron_seirenes.bridge.digest import digest
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.plan_layouts import Rect

Digests = dict[str, str]
"""The digest of the needed region of each tensor, by published name."""


def watched(
    tensors: Iterable[tuple[str, torch.Tensor]], needed: Mapping[str, Rect], into: Digests
) -> Iterator[tuple[str, torch.Tensor]]:
    """Passes `tensors` on unchanged, and writes the digest of each needed region into `into`."""
    for name, tensor in tensors:
        if name in needed:
            into[name] = digest([(name, tensor[needed[name].slices(tensor.dim())])])
        yield name, tensor


def folder_digests(folder: str | Path, needed: Mapping[str, Rect], dtype: torch.dtype) -> Digests:
    """The digests that `watched` finds when the engine is given the weights of `folder`, converted to `dtype`.

    Raises DataError when the folder cannot be read.
    """
    with HfFolder(folder) as source:
        found = {}
        for name, rect in needed.items():
            found[name] = digest([(name, source.read(name, rect.slices(source.dimensions(name))).to(dtype))])
        return found


def differing(one: Digests, other: Digests) -> list[str]:
    """The tensors whose digests differ or that only one side has."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def combined(digests: Digests) -> str:
    """One string for all regions of a rank."""
    whole = hashlib.blake2b(digest_size=32)
    for name in sorted(digests):
        whole.update(f"{name}\0{digests[name]}\0".encode())
    return whole.hexdigest()
