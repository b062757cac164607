"""A pool of worker processes that judge (gold, answer) pairs, and the one thread that looks after them.

The thread sleeps until a worker answers, a job arrives, or the earliest moment at which some worker could have used up
its CPU seconds; nothing is polled. It alone starts, feeds, meters and kills workers.

What befalls a job: answered -> its verdict; CPU seconds spent -> `timeout`, the worker is killed; worker lost (killed
by others, out of memory, stalled) -> judged once more on a fresh worker; lost again -> `timeout`. A job therefore never
depends on what its worker did before beyond that one retry, and waiting for a core costs it nothing.
"""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from megatron_seirenes.errors import MissingComponentError
from megatron_seirenes.records import VerdictReason
from megatron_seirenes.verifier.process import Job, WorkerProcess

JOBS_A_WORKER = 5_000
STARTS_TRIED = 3
LOSSES_ALLOWED = 1


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one ticket; `seconds` of CPU."""

    ticket: int
    reason: VerdictReason
    seconds: float


class WorkerPool:
    """Judges pairs in `workers` processes. Not for use from several threads at once.

    `capacity` bounds the jobs that wait or run; `submit` blocks beyond it. Nothing is started before the first job.
    """

    def __init__(self, workers: int, cpu_seconds: float, memory_mb: int, capacity: int, options: dict[str, Any]):
        self._size = workers
        self._start_arguments = (cpu_seconds, memory_mb, options)
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._judged: deque[Judged] = deque()
        self._unjudged = 0
        self._failure: Exception | None = None
        self._closing = False
        self._workers: list[WorkerProcess] = []
        self._failed_starts = 0
        self._last_error = ""
        self._thread: threading.Thread | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    # -- the caller's side

    def submit(self, ticket: int, gold: str, answer: str) -> None:
        """Queues one pair, of at most some ten thousand characters; waits while `capacity` jobs are unjudged."""
        with self._changed:
            self._changed.wait_for(lambda: self._unjudged < self._capacity or self._failure)
            self._raise_failure()
            self._waiting.append(Job(ticket, gold, answer))
            self._unjudged += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="seirenes-judge", daemon=True)
            self._thread.start()
        self._wake()

    def take(self) -> list[Judged]:
        """What was judged since the last call, without waiting."""
        taken: list[Judged] = []
        while self._judged:
            taken.append(self._judged.popleft())
        if self._failure:
            self._raise_failure()
        return taken

    def wait(self) -> None:
        """Returns when something can be taken or nothing is left to judge."""
        with self._changed:
            self._changed.wait_for(lambda: self._judged or not self._unjudged or self._failure)
            self._raise_failure()

    def close(self) -> None:
        """Kills every worker and ends the thread; unjudged jobs are forgotten."""
        if self._closing:
            return
        self._closing = True
        if self._thread is not None:
            self._wake()
            self._thread.join()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def worker_pids(self) -> list[int]:
        """The processes that live now, for people and tests."""
        return [worker.pid for worker in list(self._workers)]

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            return

    # -- the thread's side

    def _run(self) -> None:
        try:
            while not self._closing:
                self._assign()
                for key, _ in self._selector.select(self._seconds_until_due()):
                    self._attend(key)
                self._check_due()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        finally:
            for worker in list(self._workers):
                self._remove(worker)

    def _attend(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            os.read(self._wake_read, 1 << 16)
            return
        worker: WorkerProcess = key.data
        messages = worker.receive()
        if messages is None:
            self._lose(worker)
            return
        for message in messages:
            self._hear(worker, message)

    def _hear(self, worker: WorkerProcess, message: dict[str, Any]) -> None:
        if "error" in message:
            self._last_error = message["error"]
        elif "ready" in message:
            worker.ready = True
            self._failed_starts = 0
        elif worker.job is not None and message["ticket"] == worker.job.ticket:
            self._finish(worker.job, message["reason"], message["seconds"])
            worker.job = None
            worker.judged += 1

    def _finish(self, job: Job, reason: VerdictReason, seconds: float) -> None:
        with self._changed:
            self._judged.append(Judged(job.ticket, reason, seconds))
            self._unjudged -= 1
            self._changed.notify_all()

    def _lose(self, worker: WorkerProcess) -> None:
        """The worker ended, or must: its job times out, or is judged once more."""
        job, seconds = worker.job, worker.spent()
        code = self._remove(worker)
        if not worker.ready:
            self._note_failed_start(code)
        if job is None:
            return
        if code == -signal.SIGPROF or job.losses >= LOSSES_ALLOWED:
            self._finish(job, "timeout", max(seconds, worker.cpu_seconds) if code == -signal.SIGPROF else seconds)
            return
        job.losses += 1
        with self._changed:
            self._waiting.appendleft(job)

    def _note_failed_start(self, code: int) -> None:
        self._failed_starts += 1
        if self._failed_starts >= STARTS_TRIED:
            raise MissingComponentError(
                f"the judge's worker process did not start {STARTS_TRIED} times in a row (exit {code}): "
                f"{self._last_error or 'no message'}; check that math-verify is installed and that "
                "verifier.memory_mb leaves room for it (512 or more)"
            )

    def _check_due(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            if (worker.job is None and worker.ready) or now < worker.due:
                continue
            found = worker.look(now)
            if found == "spent":
                job, seconds = worker.job, worker.spent()
                self._remove(worker)
                if job is not None:
                    self._finish(job, "timeout", seconds)
            elif found == "stalled":
                self._lose(worker)

    def _seconds_until_due(self) -> float | None:
        due = [worker.due for worker in self._workers if worker.job is not None or not worker.ready]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _assign(self) -> None:
        """Gives waiting jobs to idle workers and starts workers while more jobs wait than workers are at hand."""
        for worker in list(self._workers):
            if not worker.ready or worker.job is not None:
                continue
            if worker.judged >= JOBS_A_WORKER or (worker.judged and self._next_needs_fresh()):
                self._remove(worker)
            elif self._waiting:
                with self._changed:
                    worker.send(self._waiting.popleft())
        starting = sum(not worker.ready for worker in self._workers)
        for _ in range(min(len(self._waiting) - starting, self._size - len(self._workers))):
            self._start()

    def _next_needs_fresh(self) -> bool:
        return bool(self._waiting) and self._waiting[0].losses > 0

    def _start(self) -> None:
        worker = WorkerProcess(*self._start_arguments)
        self._workers.append(worker)
        self._selector.register(worker.stdout, selectors.EVENT_READ, worker)

    def _remove(self, worker: WorkerProcess) -> int:
        self._selector.unregister(worker.stdout)
        self._workers.remove(worker)
        return worker.kill()
