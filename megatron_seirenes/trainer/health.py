"""Whether the run moves: a heartbeat for people and launchers, and an end for a process that hangs.

    RUN_DIR/heartbeat.json           what rank 0 does now: step, phase, time, process
    RUN_DIR/logs/hung-rank-0.txt     where every thread stood when the process ended itself

A beat is anything that happens: a phase, an engine step, a micro-batch. When there was none for `faults.hung_minutes`,
the process says so, writes where every thread stands, and ends with exit code 1: an engine that hangs inside a step
cannot be rebuilt in its process, so the launcher's restart goes on from the newest snapshot. A thread of ours does that
where it can run; where C++ holds the interpreter's lock, faulthandler's own thread, which needs no lock, does the same
`GRACE_SECONDS` later, without the message.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

FILE_SECONDS = 5.0
"""The heartbeat file is written at every new phase, and at most this often within one."""
ARM_SECONDS = 1.0
"""The deadline is moved at most this often: a beat must cost nothing."""
GRACE_SECONDS = 15.0


class Health:
    """Enter it once the run can begin; `beat` whenever something happened, from the main thread.

    `path` is the heartbeat file, None on ranks that write none. `say` is told once when half of the time is over.
    """

    def __init__(
        self,
        path: Path | None,
        logs: Path,
        rank: int,
        hung_minutes: float | None,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.step = 0
        self.phase = "starting"
        self._path = path
        self._traces = logs / f"hung-rank-{rank}.txt"
        self._rank = rank
        self._limit = None if hung_minutes is None else hung_minutes * 60.0
        self._say = say
        self._clock = clock
        self._last_beat = self._last_armed = self._last_written = clock()
        self._trace_file: IO[str] | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Health:
        self._write()
        if self._limit is not None:
            self._traces.parent.mkdir(parents=True, exist_ok=True)
            self._trace_file = self._traces.open("w", encoding="utf-8")
            self._arm()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._thread is not None:
            faulthandler.cancel_dump_traceback_later()
            self._thread.join()
        if self._trace_file is not None:
            self._trace_file.close()
            self._traces.unlink(missing_ok=True)
        self.beat(phase="ended")

    def beat(self, phase: str | None = None, step: int | None = None) -> None:
        """Something happened; `phase` and `step` when they are new."""
        now = self._last_beat = self._clock()
        new = (phase is not None and phase != self.phase) or (step is not None and step != self.step)
        self.phase = self.phase if phase is None else phase
        self.step = self.step if step is None else step
        if new or now - self._last_written >= FILE_SECONDS:
            self._write()
        if now - self._last_armed >= ARM_SECONDS and self._trace_file is not None and not self._closing.is_set():
            self._arm()

    def _write(self) -> None:
        self._last_written = self._clock()
        if self._path is None:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        content = {"step": self.step, "phase": self.phase, "time": now, "pid": os.getpid()}
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
            partial.replace(self._path)
        except OSError:
            return  # a disk that is full ends a run where something is lost by it, not here

    def _arm(self) -> None:
        assert self._limit is not None and self._trace_file is not None
        self._last_armed = self._clock()
        faulthandler.dump_traceback_later(self._limit + GRACE_SECONDS, exit=True, file=self._trace_file)

    # -- the thread's side

    def _watch(self) -> None:
        assert self._limit is not None
        warned = False
        while not self._closing.wait(min(self._limit / 10, 10.0)):
            silent = self._clock() - self._last_beat
            if silent >= self._limit:
                self._end(silent)
            if silent >= self._limit / 2 and not warned:
                self._say(f"nothing has happened for {silent:.0f} s in {self.phase} of step {self.step}")
            warned = silent >= self._limit / 2

    def _end(self, silent: float) -> None:
        assert self._trace_file is not None
        faulthandler.dump_traceback(file=self._trace_file, all_threads=True)
        self._trace_file.flush()
        print(
            f"rank {self._rank}: nothing has happened for {silent:.0f} s in {self.phase} of step {self.step} "
            f"(faults.hung_minutes): the process ends itself, a restart goes on from the newest snapshot; where every "
            f"thread stood: {self._traces}",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)
