"""What answers are made with, as short digests: so that a ledger is never gone on with by another policy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

BLOCKS, BLOCK_BYTES = 64, 1 << 16


def digest(parts: Iterable[str]) -> str:
    """A digest of texts in order."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        total.update(part.encode("utf-8", "replace") + b"\0")
    return total.hexdigest()


def policy_digest(folder: Path) -> str:
    """A digest of a model folder: its small files whole, of each file of weights its size and blocks spread over it.

    Training changes weights everywhere, so 64 blocks of 64 KiB tell two policies apart without reading 60 GB.
    """
    total = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".jinja", ".safetensors")):
        size = path.stat().st_size
        total.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            for start in _starts(size):
                file.seek(start)
                total.update(file.read(BLOCK_BYTES))
    return total.hexdigest()


def _starts(size: int) -> list[int]:
    """Where the blocks of a file begin; all of it when it is small, first and last block always."""
    last = max(0, size - BLOCK_BYTES)
    if size <= BLOCKS * BLOCK_BYTES:
        return [*range(0, last, BLOCK_BYTES), last]
    return [last * block // (BLOCKS - 1) for block in range(BLOCKS)]
