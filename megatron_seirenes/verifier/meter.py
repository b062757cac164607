"""How much CPU time another process has used, read from outside it.

Linux tells it in `/proc/<pid>/stat` (user plus system time of all its threads, in clock ticks); elsewhere psutil does.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import psutil

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_BLOCKED_STATES = frozenset("SDTtZX")


class Usage(NamedTuple):
    """`cpu_seconds` since the process began; `blocked` when it neither runs nor waits for a core."""

    cpu_seconds: float
    blocked: bool


def usage(pid: int) -> Usage | None:
    """What `pid` has used so far, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return _usage_elsewhere(pid)
    return Usage((int(fields[11]) + int(fields[12])) * _TICK, fields[0].decode() in _BLOCKED_STATES)


def _usage_elsewhere(pid: int) -> Usage | None:
    if os.path.exists("/proc/self/stat"):
        return None
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.status() != psutil.STATUS_RUNNING)
    except psutil.Error:
        return None
