"""Reading weights out of a Megatron-Core distributed checkpoint, by region, whatever layout wrote it.

Nothing of torch.distributed is started and no model is built: one chunk is in memory at a time. The index of such a
checkpoint is a pickle: it is read by an unpickler that makes nothing but its own plain records, and chunks are read
with `weights_only`, so a checkpoint from elsewhere cannot run code here.

Refused by name: a weight that is missing, of another shape than the architecture's, stored in a form that is not known,
or that no chunk covers; and weights of a model that the architecture is not.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy, Shard, regions
from megatron_seirenes.bridge.megatron_format import Stored, known_keys, stored_as
from megatron_seirenes.bridge.weight_map import EMBEDDING, HfTensor, build_weight_map
from megatron_seirenes.errors import DataError

SHOWN = 5

_ALLOWED_MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.planner")
_ALLOWED = {
    ("torch", "Size"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("collections", "OrderedDict"),
}


class MegatronCheckpoint:
    """An open checkpoint of a model of `architecture`. Raises DataError when it does not hold one."""

    def __init__(self, folder: str | Path, architecture: Architecture):
        self.folder = Path(folder)
        self.architecture = architecture
        self._metadata = _read_metadata(self.folder)
        rows = self._tensor(EMBEDDING).size[0]
        self.weight_map = build_weight_map(architecture, max(rows, architecture.vocabulary))
        self._last: tuple[MetadataIndex, torch.Tensor] | None = None
        self._sorted: dict[str, dict[tuple[int, ...], list[Any]]] = {}
        self._places: dict[str, list[tuple[Stored, Copy]]] = {}
        for parameter in self.weight_map.parameters.values():
            if not parameter.replica:
                stored = stored_as(parameter.name, architecture)
                for copy in regions(parameter, Shard()):
                    self._places.setdefault(copy.hf_name, []).append((stored, copy))
        self._check()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every published tensor in the order of the weight map, in the dtype of the checkpoint."""
        for tensor in self.weight_map.tensors.values():
            yield tensor.name, self._assembled(tensor)

    def _assembled(self, tensor: HfTensor) -> torch.Tensor:
        whole: torch.Tensor | None = None
        for stored, copy in self._places[tensor.name]:
            key = self._key(stored)
            if whole is None:
                whole = torch.empty(tensor.shape, dtype=self._tensor(key).properties.dtype)
            if self._fill(whole[copy.hf_index], key, stored, copy) != whole[copy.hf_index].numel():
                raise DataError(f"{self.folder}: {key} is not whole: no chunk holds a part of {tensor.name}")
        assert whole is not None
        return whole

    def _fill(self, target: torch.Tensor, key: str, stored: Stored, copy: Copy) -> int:
        """Copies what the chunks of `key` hold of a region of a parameter; returns the numbers copied."""
        wanted = [(part.start, part.stop) for part in copy.local_index]
        copied = 0
        for chunk in self._chunks_at(key, stored):
            leading = len(stored.index)
            offsets, sizes = chunk.offsets[leading:], chunk.sizes[leading:]
            common = [
                (max(start, offset), min(stop, offset + size))
                for (start, stop), offset, size in zip(wanted, offsets, sizes, strict=True)
            ]
            if any(start >= stop for start, stop in common):
                continue
            numbers = self._chunk(MetadataIndex(key, chunk.offsets))
            inside = [index - first for index, first in zip(stored.index, chunk.offsets, strict=False)]
            source = tuple(slice(a - offset, b - offset) for (a, b), offset in zip(common, offsets, strict=True))
            place = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(common, wanted, strict=True))
            target[place].copy_(numbers[(*inside, *source)])
            copied += target[place].numel()
        return copied

    def _chunks_at(self, key: str, stored: Stored) -> Iterator[Any]:
        """The chunks that hold the layer and expert of `stored`, sorted once a key; one may hold several layers."""
        if key not in self._sorted:
            chunks: dict[tuple[int, ...], list[Any]] = {}
            for chunk in self._tensor(key).chunks:
                leading = zip(chunk.offsets, chunk.sizes, stored.index, strict=False)
                for index in product(*(range(first, first + count) for first, count, _ in leading)):
                    chunks.setdefault(index, []).append(chunk)
            self._sorted[key] = chunks
        yield from self._sorted[key].get(stored.index, ())

    def _chunk(self, index: MetadataIndex) -> torch.Tensor:
        """One chunk; the last one is kept, because q, k and v lie in the same."""
        if self._last is not None and self._last[0] == index:
            return self._last[1]
        self._last = None
        place = self._metadata.storage_data[index]
        path = self.folder / place.relative_path
        try:
            with path.open("rb") as file:
                file.seek(place.offset)
                content = file.read(place.length)
            numbers = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise DataError(f"{path}: {index.fqn} cannot be read, the file is damaged or truncated: {error}") from None
        self._last = (index, numbers)
        return numbers

    def _key(self, stored: Stored) -> str:
        return next((key for key in stored.keys if key in self._metadata.state_dict_metadata), stored.keys[0])

    def _tensor(self, key: str) -> TensorStorageMetadata:
        entry = self._metadata.state_dict_metadata.get(key)
        if not isinstance(entry, TensorStorageMetadata):
            raise DataError(f"{self.folder}: {key} is missing from the checkpoint, or no tensor")
        return entry

    def _check(self) -> None:
        """Every weight is there with its shape, and none that the architecture has not."""
        faults = []
        for parameter in self.weight_map.parameters.values():
            if parameter.replica:
                continue
            stored = stored_as(parameter.name, self.architecture)
            key, shape = self._key(stored), (*stored.lengths, *parameter.shape)
            entry = self._metadata.state_dict_metadata.get(key)
            if not isinstance(entry, TensorStorageMetadata):
                faults.append(f"{key} is missing")
            elif tuple(entry.size) != shape:
                faults.append(f"{key} has shape {tuple(entry.size)}; the architecture gives {shape}")
        known = known_keys(self.architecture)
        for key, entry in self._metadata.state_dict_metadata.items():
            weight = isinstance(entry, TensorStorageMetadata) and key.split(".")[0] in _WEIGHT_ROOTS
            if weight and key not in known:
                faults.append(f"{key} is not a weight of a {self.architecture.family.model_type} model")
        faults = list(dict.fromkeys(faults))
        if faults:
            more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
            raise DataError("\n  ".join([f"{self.folder}: does not fit config.json", *faults[:SHOWN], *more]))


_WEIGHT_ROOTS = ("decoder", "embedding", "output_layer")


class _RecordsOnly(pickle.Unpickler):
    """Makes nothing but the records of torch's checkpoint index: a pickle that asks for more is refused."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = module in _ALLOWED_MODULES or (module, name) in _ALLOWED
        if allowed or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _read_metadata(folder: Path) -> Metadata:
    path = folder / ".metadata"
    if not (folder / "metadata.json").exists() or not path.exists():
        raise DataError(f"{folder}: not a complete Megatron checkpoint: metadata.json or .metadata is missing")
    try:
        with path.open("rb") as file:
            metadata = _RecordsOnly(file).load()
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ValueError) as error:
        raise DataError(f"{path}: not an index of a distributed checkpoint: {error}") from None
    if not isinstance(metadata, Metadata):
        raise DataError(f"{path}: not an index of a distributed checkpoint")
    return metadata
