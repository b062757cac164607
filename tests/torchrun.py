"""Programs of several processes, under a torchrun that picks its own port, and ports for whoever does without."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent
LONGEST_RUN = 880
"""Seconds; a little less than the time limit of a test."""


def launch(
    program: Path, processes: int, *arguments: str | Path, path: tuple[Path, ...] = (), **environment: str
) -> None:
    """Runs `program` on so many processes; it imports from its own folder, from `path`, from tests/ and the package.

    Fails with the end of what it said when it does not end well.
    """
    places = (TESTS.parent, TESTS, program.parent, *path)
    variables: Mapping[str, str] = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        **environment,
    }
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [sys.executable, *torchrun, program, *arguments],
        env=variables,
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=LONGEST_RUN,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
