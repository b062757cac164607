"""Snapshots: everything a run needs to go on, complete or not there at all.

    snapshots/step-000010/          after collection step 10
    snapshots/step-000010-next-1/   within step 11, after its collection and before its second stream
        actor/        Megatron distributed checkpoint: weights, optimizer, learning-rate state
        state.json.gz trainer state: cursor, sampler, mastery, streams with their trajectories, versions, counters
        config.yaml   the configuration it was made under
        digests.json  blake2b of every other file
        COMPLETE      the digest of digests.json, written last

A snapshot is written in a hidden sibling folder, flushed, and made complete by one rename; older ones are removed only
after that. When the disk refuses (full, read-only, gone), what was written of it is removed and the error is raised;
the folder of snapshots is never made anew, so that a run directory that vanished is noticed. A folder without COMPLETE,
or with a file that differs from its digest, is never loaded: it is named and the one before is used. Snapshots are
trusted input of the user who made them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.errors import DataError

FORMAT = 1
"""Counts up when the trainer's state changes its shape: a snapshot of another format is refused, never guessed at."""
DIGEST_THREADS = 8
"""Files read at once; hashing leaves the interpreter lock to the others."""

NAME = re.compile(r"step-(\d{6})(?:-next-(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """Where a run stands: `step` collection steps are complete; within the next one, collection is over when
    `next_stream` is not None, and streams before it have had their turn."""

    step: int
    next_stream: int | None = None

    @property
    def name(self) -> str:
        suffix = "" if self.next_stream is None else f"-next-{self.next_stream}"
        return f"step-{self.step:06d}{suffix}"

    @property
    def order(self) -> tuple[int, int]:
        return (self.step, -1 if self.next_stream is None else self.next_stream)

    @classmethod
    def parse(cls, name: str) -> Cursor | None:
        match = NAME.fullmatch(name)
        if match is None:
            return None
        return cls(int(match.group(1)), int(match.group(2)) if match.group(2) is not None else None)


def write_snapshot(
    folder: Path, cursor: Cursor, state: Mapping[str, Any], config_yaml: str, save_actor: Callable[[Path], None]
) -> Path:
    """Writes the snapshot of `cursor` into `folder` (snapshots/) and returns its path. Raises OSError."""
    final = folder / cursor.name
    partial = folder / f".{cursor.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write(partial, state, config_yaml, save_actor)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _flush(folder)
    return final


def _write(partial: Path, state: Mapping[str, Any], config_yaml: str, save_actor: Callable[[Path], None]) -> None:
    partial.mkdir()
    (partial / "actor").mkdir()
    save_actor(partial / "actor")
    encoded = json.dumps({"format": FORMAT, **state}, separators=(",", ":")).encode()
    (partial / "state.json.gz").write_bytes(gzip.compress(encoded, compresslevel=1, mtime=0))
    (partial / "config.yaml").write_text(config_yaml, encoding="utf-8")
    (partial / "digests.json").write_text(json.dumps(_digests(partial), indent=1), encoding="utf-8")
    (partial / "COMPLETE").write_text(_digest(partial / "digests.json"), encoding="utf-8")
    _flush_tree(partial)


def snapshot_folders(folder: Path) -> list[Path]:
    """Every folder with the name of a snapshot, complete or not, newest first."""
    if not folder.is_dir():
        return []
    found = [(cursor, path) for path in folder.iterdir() if (cursor := Cursor.parse(path.name)) is not None]
    return [path for _, path in sorted(found, key=lambda item: item[0].order, reverse=True)]


def complete_snapshots(folder: Path) -> list[Path]:
    """The snapshots that hold COMPLETE, newest first."""
    return [path for path in snapshot_folders(folder) if (path / "COMPLETE").exists()]


def newest_sound_snapshot(folder: Path, report: Callable[[str], None]) -> Path | None:
    """The newest complete snapshot whose files match their digests; each broken one is reported by name."""
    for path in snapshot_folders(folder):
        fault = fault_of(path)
        if fault is None:
            return path
        report(f"{path}: broken snapshot skipped: {fault}")
    return None


def fault_of(snapshot: Path) -> str | None:
    """What is wrong with a snapshot's files, or None."""
    try:
        if (snapshot / "COMPLETE").read_text(encoding="utf-8") != _digest(snapshot / "digests.json"):
            return "digests.json or COMPLETE changed since it was written"
        expected = json.loads((snapshot / "digests.json").read_text(encoding="utf-8"))
        actual = _digests(snapshot)
    except FileNotFoundError as error:
        return f"it holds no {Path(error.filename).name}"
    except (OSError, ValueError) as error:
        return f"a file cannot be read: {error}"
    missing = sorted(set(expected) - set(actual))
    if missing:
        return f"file missing: {missing[0]}"
    changed = sorted(name for name, digest in expected.items() if actual[name] != digest)
    return f"file changed since it was written: {changed[0]}" if changed else None


def read_state(snapshot: Path) -> dict[str, Any]:
    """The trainer state of a snapshot. Raises DataError."""
    path = snapshot / "state.json.gz"
    try:
        state = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    seen = state.pop("format", None)
    if seen != FORMAT:
        raise DataError(f"{path}: a snapshot of format {seen}; this version reads format {FORMAT}: use the other one")
    return state


def remove_old(folder: Path, keep: int, keep_every: int | None) -> None:
    """Keeps the `keep` newest complete snapshots and those of every `keep_every`-th step; removes the others."""
    for path in complete_snapshots(folder)[keep:]:
        cursor = Cursor.parse(path.name)
        if cursor and keep_every and cursor.next_stream is None and cursor.step % keep_every == 0:
            continue
        (path / "COMPLETE").unlink()
        shutil.rmtree(path)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _digests(folder: Path) -> dict[str, str]:
    own = {"digests.json", "COMPLETE"}
    named = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    named = {name: path for name, path in named.items() if name not in own}
    with ThreadPoolExecutor(DIGEST_THREADS, thread_name_prefix="digests") as threads:
        return dict(zip(named, threads.map(_digest, named.values()), strict=True))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _flush_tree(folder: Path) -> None:
    for path in _files(folder):
        _flush(path)
    for path in sorted(p for p in folder.rglob("*") if p.is_dir()):
        _flush(path)
    _flush(folder)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
