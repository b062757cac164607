"""Keys pressed at the terminal, read without waiting and without a thread.

Reads nothing when standard input is not a terminal, or while the process is in the background (a read would stop it).
The terminal shows no typed characters while `Keys` is open and is put back by `close`, also at the interpreter's end.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
from typing import Any, TextIO


class Keys:
    """The keys of one terminal."""

    def __init__(self, stream: TextIO | None = None):
        stream = sys.stdin if stream is None else stream
        self._before: list[Any] | None = None
        if stream is None or stream.closed or not stream.isatty():
            return
        import termios
        import tty

        self._file = stream.fileno()
        if self._in_background():
            return
        self._before = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        atexit.register(self.close)

    def pressed(self) -> str:
        """Every key pressed since the last call; empty when there is none."""
        if self._before is None or self._in_background():
            return ""
        ready, _, _ = select.select([self._file], [], [], 0)
        return os.read(self._file, 64).decode("utf-8", "replace") if ready else ""

    def close(self) -> None:
        """Puts the terminal back."""
        before, self._before = self._before, None
        if before is None:
            return
        import termios

        atexit.unregister(self.close)
        if not self._in_background():
            termios.tcsetattr(self._file, termios.TCSADRAIN, before)

    def _in_background(self) -> bool:
        try:
            return os.tcgetpgrp(self._file) != os.getpgrp()
        except OSError:  # a terminal, but not the one that controls this process
            return True
