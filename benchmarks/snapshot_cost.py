"""What a snapshot costs beside writing it: reading it back for digests, at saving and at resuming.

    python benchmarks/snapshot_cost.py [--mebibytes 1024] [--folder DIR]

Prints seconds and rates of writing, flushing, hashing what was just written (from the page cache, as at a save), and
hashing it after the cache was dropped where that is permitted (as at a resume).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "weights"
        block = os.urandom(CHUNK)
        report("write", arguments.mebibytes, lambda: write(path, block, arguments.mebibytes))
        report("flush", arguments.mebibytes, lambda: flush(path))
        report("digest, from the page cache", arguments.mebibytes, lambda: digest(path))
        if drop_cache(path):
            report("digest, from the disk", arguments.mebibytes, lambda: digest(path))


def report(what: str, mebibytes: int, action: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<28}{wall:8.2f} s wall{cpu:8.2f} s CPU{mebibytes / wall:10.0f} MiB/s")


def write(path: Path, block: bytes, count: int) -> None:
    with path.open("wb") as file:
        for _ in range(count):
            file.write(block)


def flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """As trainer/snapshot.py does it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def drop_cache(path: Path) -> bool:
    """Forgets the cached pages of one file, where the system knows how."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


if __name__ == "__main__":
    main()
