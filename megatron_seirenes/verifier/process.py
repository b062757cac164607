"""One worker process as its parent sees it: started from nothing, spoken to in JSON lines, metered and killed.

The worker is a fresh interpreter (never a fork of the host, which holds threads of torch and the engine), in a session
of its own so that a Ctrl-C does not reach it, with an environment of a few fixed variables. It takes one input at a
time. Nothing it does can block the parent: pipes are read without waiting, an input is shorter than a pipe's buffer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.verifier.meter import usage

WORKER_MODULE = "megatron_seirenes.verifier.worker"
STARTUP_SECONDS = 300.0
STALL_SECONDS = 30.0
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_READ_BYTES = 1 << 16


def worker_environment() -> dict[str, str]:
    """All that a worker knows of the host's environment: where Python finds its packages, and fixed settings."""
    path = [str(_PACKAGE_PARENT), *(entry for entry in sys.path if entry)]
    return {
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


@dataclass(slots=True)
class Job:
    """One input on its way through the pool; `losses` counts the workers that were lost over it."""

    ticket: int
    gold: str
    answer: str
    losses: int = 0


class WorkerProcess:
    """A worker, the job it holds, and when the parent must look at it next (`due`, monotonic seconds)."""

    def __init__(self, cpu_seconds: float, memory_mb: int, options: dict[str, Any]):
        self.cpu_seconds = cpu_seconds
        self.job: Job | None = None
        self.ready = False
        self.judged = 0
        self.due = time.monotonic() + STARTUP_SECONDS
        self._cpu_at_start = 0.0
        self._cpu_last = 0.0
        self._moved_at = time.monotonic()
        self._buffer = b""
        settings = json.dumps({"cpu_seconds": cpu_seconds, "memory_mb": memory_mb, "options": options})
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-m", WORKER_MODULE, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env=worker_environment(),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self.stdout = self._process.stdout.fileno()
        os.set_blocking(self.stdout, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, job: Job) -> None:
        """Gives the worker its next input. A worker that is already gone is noticed at the next read."""
        self.job = job
        seen = usage(self.pid)
        self._cpu_at_start = self._cpu_last = seen.cpu_seconds if seen else 0.0
        self._moved_at = time.monotonic()
        self.due = self._moved_at + min(self.cpu_seconds, STALL_SECONDS)
        request = {"ticket": job.ticket, "gold": job.gold, "answer": job.answer}
        line = json.dumps(request, ensure_ascii=False) + "\n"
        try:
            os.write(self._stdin, line.encode("utf-8", "surrogatepass"))
        except OSError:
            return

    def receive(self) -> list[dict[str, Any]] | None:
        """The whole messages that arrived, without waiting; None at the end of the worker's life."""
        messages: list[dict[str, Any]] = []
        while True:
            try:
                chunk = os.read(self.stdout, _READ_BYTES)
            except BlockingIOError:
                return messages
            except OSError:
                return None
            if not chunk:
                return messages or None
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            messages.extend(json.loads(line) for line in lines)

    def look(self, now: float) -> str | None:
        """`spent` when the job used up its CPU seconds, `stalled` when nothing moves; else None, and `due` moves on.

        A process that waits for a core is not stalled, however long it waits.
        """
        if not self.ready:
            return "stalled" if now >= self.due else None
        seen = usage(self.pid)
        if seen is None:
            return "stalled"
        left = self.cpu_seconds - (seen.cpu_seconds - self._cpu_at_start)
        if left <= 0:
            return "spent"
        if seen.cpu_seconds > self._cpu_last or not seen.blocked:
            self._cpu_last, self._moved_at = seen.cpu_seconds, now
        elif now - self._moved_at >= STALL_SECONDS:
            return "stalled"
        self.due = now + max(0.02, min(left, STALL_SECONDS / 2))
        return None

    def spent(self) -> float:
        """CPU seconds that the present job has used, as far as can be seen."""
        seen = usage(self.pid)
        return max(0.0, seen.cpu_seconds - self._cpu_at_start) if seen else 0.0

    def kill(self) -> int:
        """Ends the process with SIGKILL, if it has not ended yet, and returns how it ended."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code
