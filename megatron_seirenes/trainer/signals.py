"""Being told to stop, without trusting Python's signal handlers.

A handler runs only when the main thread returns to the interpreter, which it does not while a collective or an engine
step blocks in C++. The C-level handler does write to the wake-up descriptor at once, so a thread reads it there.

The first signal sets `requested`, which the trainer reads at safe points; a second one ends the process at once and
leaves the last complete snapshot as it is.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import TracebackType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class StopListener:
    """While entered, notes SIGINT, SIGTERM and SIGUSR1. Enter it on the main thread, once a process."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, object] = {}

    @property
    def requested(self) -> bool:
        return self.received is not None

    def __enter__(self) -> StopListener:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, _leave_it_to_the_thread)
        self._previous_descriptor = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="stop-listener", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._previous_descriptor)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._writer.close()
        self._thread.join(timeout=1)
        self._reader.close()

    def _listen(self) -> None:
        while received := self._reader.recv(1):
            number = received[0]
            if number not in STOP_SIGNALS:
                continue
            if self.received is not None:
                os._exit(128 + number)
            self.received = signal.Signals(number)


def _leave_it_to_the_thread(number: int, frame: object) -> None:
    pass
