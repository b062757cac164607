"""A disk of a few kilobytes, which fills up, and folders made read-only, where mounting is permitted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mounts a tmpfs on `folder`; skips the test where that is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        run("umount", "--lazy", str(folder))


def make_read_only(folder: Path) -> None:
    """Mounts the folder read-only over itself; files that are open in it can still be written."""
    run("mount", "--bind", str(folder), str(folder))
    run("mount", "-o", "remount,ro,bind", str(folder))


def make_writable(folder: Path) -> None:
    run("umount", "--lazy", str(folder))


def fill(folder: Path, leave: int = 0) -> Path:
    """Fills the disk but for `leave` bytes."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            file.truncate(max(0, file.tell() - leave))
    return path


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)
