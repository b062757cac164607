"""Writes rollout records while the run goes on: compressing a step's texts takes seconds that nobody needs to wait for.

Records are made by the caller, whose objects then are not looked at again; encoding and writing happen on threads that
touch neither torch nor the tokenizer. At most one step is under way: the next one waits for it. A failure (a full disk)
is raised once, by the next `write`, `wait` or `close`; the step it befell has no records, later ones are written. What
is on the disk is the same as if it had been written at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from megatron_seirenes.observe.bundle_index import encode_bundles, write_bundles
from megatron_seirenes.observe.records import Record

THREADS = 4
"""Threads that compress; zlib leaves the interpreter lock to the others."""


class RecordWriter:
    """Writes the record files of one run directory in the background."""

    def __init__(self, run_dir: Path, threads: int = THREADS):
        self._run_dir = run_dir
        self._compressors = ThreadPoolExecutor(threads, thread_name_prefix="records")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="record-writer")
        self._under_way: Future[Path] | None = None

    def write(self, step: int, bundles: Sequence[Sequence[Record]]) -> None:
        """Takes the records of every bundle of `step`; returns once the step before is on the disk, or raises its fault
        (OSError), having taken these all the same."""
        try:
            self.wait()
        finally:
            self._under_way = self._writer.submit(self._write, step, bundles)

    def wait(self) -> None:
        """Returns when everything taken is on the disk; raises what went wrong with it."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def close(self) -> None:
        """Waits, then ends the threads."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()
            self._compressors.shutdown()

    def _write(self, step: int, bundles: Sequence[Sequence[Record]]) -> Path:
        return write_bundles(self._run_dir, step, encode_bundles(bundles, self._compressors))
