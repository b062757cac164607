"""Asks the machine. The only module that `doctor` looks through, so that tests can put other machines in its place.

Package versions come from their metadata and package folders from the import path; only torch is imported, because
nothing else knows the CUDA devices.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One GPU. `capability` is (major, minor)."""

    name: str
    memory_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True)
class CudaState:
    """What torch says of CUDA: the version it was built for, the devices it sees, and why it could not be asked."""

    built_for: str | None
    devices: tuple[CudaDevice, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PackageFolder:
    """Where a package would be imported from: a `namespace` is a folder (or several) without an `__init__.py`."""

    paths: tuple[Path, ...]
    namespace: bool

    def holds(self, name: str) -> bool:
        """Whether a submodule or subpackage of that name lies in the folder."""
        return any((path / name).is_dir() or (path / f"{name}.py").is_file() for path in self.paths)


class Probes:
    """This machine."""

    def python(self) -> tuple[int, int, int]:
        return sys.version_info[:3]

    def platform(self) -> str:
        return f"{platform.system()} {platform.machine()}"

    def cores(self) -> int:
        """The cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def memory_bytes(self) -> int:
        """Main memory in all."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def version(self, distribution: str) -> str | None:
        """The installed version of a distribution, or None."""
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def folder(self, package: str) -> PackageFolder | None:
        """Where a top-level package lies, without importing it; None when there is no such package."""
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            return None
        if spec is None or spec.submodule_search_locations is None:
            return None
        return PackageFolder(tuple(Path(path) for path in spec.submodule_search_locations), spec.origin is None)

    def cuda(self) -> CudaState:
        """What torch says; imports it."""
        try:
            import torch
        except Exception as error:
            return CudaState(None, (), f"{type(error).__name__}: {error}")
        try:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            found = [torch.cuda.get_device_properties(index) for index in range(count)]
        except RuntimeError as error:
            return CudaState(torch.version.cuda, (), str(error))
        devices = tuple(CudaDevice(device.name, device.total_memory, (device.major, device.minor)) for device in found)
        return CudaState(torch.version.cuda, devices)
