r"""The worker process: reads inputs as JSON lines, answers verdicts as JSON lines, and is expendable.

Before it reads anything it caps its own address space, forbids core dumps, asks to die with its parent, leaves the
network where the kernel lets it, and takes standard output away from everybody else. A timer of the kernel ends it when
one input takes more than its CPU seconds and a margin, should the parent be too busy to do so; running out of memory
ends it too. It never answers for what it could not judge: the parent sees the end and decides.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO

MARGIN_SECONDS = 0.5
OUT_OF_MEMORY = 86
RECURSION_LIMIT = 3_000
_PR_SET_PDEATHSIG = 1


def confine(memory_mb: int) -> None:
    """Caps the address space, forbids core dumps and, on Linux, ties this process to the life of its parent."""
    size = memory_mb << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.setrecursionlimit(RECURSION_LIMIT)


def leave_the_network() -> None:
    """Moves into an empty network namespace where the kernel lets it; nothing here needs a network.

    An ordinary user needs a user namespace for that. Root must not take one: it would lose the right to read other
    users' files, Python's own among them.
    """
    if not hasattr(os, "unshare"):
        return
    with contextlib.suppress(OSError):
        os.unshare(os.CLONE_NEWNET if os.geteuid() == 0 else os.CLONE_NEWUSER | os.CLONE_NEWNET)


def private_output() -> BinaryIO:
    """Standard output for verdicts alone: whatever a library prints goes nowhere."""
    mine = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return mine


def serve(judge: Callable[[str, str], str], cpu_seconds: float, requests: BinaryIO, verdicts: BinaryIO) -> None:
    """Judges one line after another until the parent closes the pipe."""
    verdicts.write(b'{"ready": true}\n')
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds + MARGIN_SECONDS)
        try:
            reason = judge(request["gold"], request["answer"])
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception:  # a fault of a library on one input is that input's, not the worker's
            reason = "unparsable"
        signal.setitimer(signal.ITIMER_PROF, 0)
        verdict = {"ticket": request["ticket"], "reason": reason, "seconds": time.process_time() - began}
        verdicts.write(json.dumps(verdict).encode("ascii") + b"\n")


def main() -> None:
    settings = json.loads(sys.argv[1])
    leave_the_network()
    confine(settings["memory_mb"])
    verdicts = private_output()
    try:
        from megatron_seirenes.verifier.decision import decide
        from megatron_seirenes.verifier.options import Options
    except ImportError as error:
        verdicts.write(json.dumps({"error": str(error)}).encode("ascii") + b"\n")
        return
    options = Options(**settings["options"])
    serve(lambda gold, answer: decide(gold, answer, options), settings["cpu_seconds"], sys.stdin.buffer, verdicts)


if __name__ == "__main__":
    main()
