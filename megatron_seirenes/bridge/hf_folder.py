"""Reading a Hugging Face folder of safetensors, by slice, so that a rank reads only the bytes it holds.

The files are trusted with nothing: pickled weights are refused (unpickling runs code), names in an index may not leave
the folder, and every tensor's place is checked on opening. A folder with both a single file and an index is refused,
because readers differ in which one they take.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from megatron_seirenes.bridge.layout import Index
from megatron_seirenes.bridge.weight_map import HfTensor
from megatron_seirenes.errors import DataError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
SHOWN = 5


class HfFolder:
    """An open folder; use it as a context manager. Tensors are found by their published names.

    Raises DataError naming the file when weights are missing, truncated, pickled or not where the index says.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._stack = ExitStack()
        try:
            self._slices = self._open_all()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> HfFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._slices

    def names(self) -> Iterable[str]:
        return self._slices.keys()

    def read(self, name: str, index: Index) -> torch.Tensor:
        """The region `index` of one tensor, on the CPU, in the file's dtype."""
        file, handle = self._slices[name]
        try:
            return handle[index]
        except SafetensorError as error:
            raise DataError(f"{file}: tensor {name!r} cannot be read: {error}") from None

    def dimensions(self, name: str) -> int:
        """The number of dimensions of one tensor."""
        return len(self._slices[name][1].get_shape())

    def check(self, tensors: Mapping[str, HfTensor], ignored: Iterable[str] = ()) -> None:
        """Raises DataError, with every fault, unless the folder holds exactly `tensors`, each of its shape."""
        faults = _listed("missing", [name for name in tensors if name not in self._slices])
        surplus = set(self._slices) - set(tensors) - set(ignored)
        faults += _listed("unexpected", sorted(name for name in surplus if not name.endswith(".rotary_emb.inv_freq")))
        for name, tensor in tensors.items():
            if name in self._slices:
                faults += self._tensor_faults(tensor)
        if faults:
            raise DataError("\n".join([f"{self.folder}: weights do not fit config.json", *(f"  {f}" for f in faults)]))

    def _tensor_faults(self, tensor: HfTensor) -> list[str]:
        file, handle = self._slices[tensor.name]
        shape, dtype = tuple(handle.get_shape()), handle.get_dtype()
        faults = []
        if shape != tensor.shape:
            faults.append(f"{tensor.name} in {file.name} has shape {shape}; config.json gives {tensor.shape}")
        if dtype not in FLOAT_DTYPES:
            faults.append(f"{tensor.name} in {file.name} is {dtype}; {', '.join(FLOAT_DTYPES)} can be read")
        return faults

    def _open_all(self) -> dict[str, tuple[Path, Any]]:
        slices: dict[str, tuple[Path, Any]] = {}
        for file, wanted in self._files().items():
            handle = self._open(file)
            present = set(handle.keys())
            absent = sorted(set(wanted) - present)
            if absent:
                raise DataError(f"{file}: {INDEX_FILE} places tensors there that it lacks: {', '.join(absent[:SHOWN])}")
            slices.update((name, (file, handle.get_slice(name))) for name in sorted(wanted or present))
        return slices

    def _open(self, file: Path) -> Any:
        try:
            return self._stack.enter_context(safe_open(file, framework="pt"))
        except FileNotFoundError:
            raise DataError(f"{file}: named by {INDEX_FILE}, but not there") from None
        except (OSError, SafetensorError) as error:
            raise DataError(f"{file}: damaged or truncated safetensors file: {error}") from None

    def _files(self) -> dict[Path, list[str]]:
        """Each weight file with the names the index places in it; no names for a single file, which holds all."""
        single, index = self.folder / SINGLE_FILE, self.folder / INDEX_FILE
        if single.exists() and index.exists():
            raise DataError(f"{self.folder}: holds both {SINGLE_FILE} and {INDEX_FILE}; keep the one that is meant")
        if single.exists():
            return {single: []}
        if index.exists():
            return _indexed_files(index)
        raise DataError(_why_no_weights(self.folder))


def _indexed_files(index: Path) -> dict[Path, list[str]]:
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{index}: not an index of weights: {error!r}") from None
    files: dict[Path, list[str]] = {}
    for name, file in places:
        if not isinstance(file, str) or Path(file).name != file:
            raise DataError(f"{index}: {name} is placed in {file!r}; only files of the same folder can be named")
        files.setdefault(index.parent / file, []).append(name)
    return files


def _why_no_weights(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: no such model folder"
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        return f"{folder}: holds pickled weights only, which can run code when read; convert them to safetensors first"
    if any(folder.glob("*.safetensors")):
        return f"{folder}: holds safetensors files but neither {SINGLE_FILE} nor {INDEX_FILE}"
    return f"{folder}: holds no weights: {SINGLE_FILE} or {INDEX_FILE} expected"


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what}: {', '.join(names[:SHOWN])}{more}"]
