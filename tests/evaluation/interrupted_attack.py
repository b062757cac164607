"""An attack that is stopped by a signal, killed, and ended by a third start: what was sent, counted at the server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback_endpoint import PATIENCE, Loopback

SETTLING = 1.0
"""Seconds in which what a dead process had sent arrives at the server."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each conversation has come to the server, and how many answers to it are kept."""

    sent: Counter[str]
    kept: Counter[str]

    @property
    def lost(self) -> Counter[str]:
        """What was sent, and its answer not kept."""
        return self.sent - self.kept


def in_three_goes(config: Path, cache: Path, server: Loopback, stop_at: int, kill_at: int) -> tuple[Tally, ...]:
    """`seirenes attack`: SIGTERM while request `stop_at` is at the server, SIGKILL during `kill_at`, then to its end.

    Returns the tally after each go. The server answers the held request half a second after SIGTERM, and after SIGKILL
    when the process is gone.
    """
    stopped, output = _interrupt(config, server, stop_at, signal.SIGTERM)
    assert stopped == 75 and "the same command goes on" in output, output
    tallies = [_tally(server, cache)]
    killed, output = _interrupt(config, server, kill_at, signal.SIGKILL)
    assert killed == -signal.SIGKILL, output
    time.sleep(SETTLING)
    tallies.append(_tally(server, cache))
    done = subprocess.run(_command(config), env=_environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    return (*tallies, _tally(server, cache))


def conversation(record: Mapping[str, Any]) -> str:
    """What was said, of a request or of a line of the cache."""
    return json.dumps(record["messages"])


def _interrupt(config: Path, server: Loopback, number: int, signal_number: int) -> tuple[int, str]:
    """Starts the attack and sends it the signal while the server holds request `number`; exit code and output."""
    server.hold(number)
    process = subprocess.Popen(
        _command(config), env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if not server.held.wait(PATIENCE):
        process.kill()
        raise AssertionError(process.communicate()[0])
    process.send_signal(signal_number)
    if signal_number == signal.SIGKILL:
        process.wait()
    time.sleep(0.5)
    server.go_on.set()
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output


def _tally(server: Loopback, cache: Path) -> Tally:
    kept = map(json.loads, cache.read_text(encoding="utf-8").splitlines())
    return Tally(_conversations(list(server.requests)), _conversations(kept))


def _conversations(records: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(map(conversation, records))


def _command(config: Path) -> list[str]:
    return [sys.executable, "-m", "megatron_seirenes", "attack", str(config)]


def _environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
