"""Running the commands of a quickstart beside each other, each in a process of its own, with one bar each.

A command's output goes to its log; the bar is fed from what the command leaves behind. When one fails, the others are
ended and the end of its log is shown.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from megatron_seirenes.errors import SeirenesError

POLL_SECONDS = 0.5
LOG_LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Command:
    """One `seirenes` command: its arguments, what it makes, where it prints, and how far it is (a fraction of 1).

    `product` appears whole, when the command has done its work.
    """

    title: str
    arguments: tuple[str, ...]
    product: Path
    log: Path
    progress: Callable[[], float]


def run_together(commands: Sequence[Command], console: Console) -> None:
    """Runs the commands that have no product yet, at the same time. Raises SeirenesError when one fails."""
    commands = [command for command in commands if not command.product.exists()]
    if not commands:
        return
    started = time.monotonic()
    processes = [_start(command) for command in commands]
    try:
        with _bars(console) as bars:
            tasks = [bars.add_task(command.title, total=1.0) for command in commands]
            while any(process.poll() is None for process in processes):
                for command, process, task in zip(commands, processes, tasks, strict=True):
                    _check(command, process)
                    bars.update(task, completed=command.progress())
                time.sleep(POLL_SECONDS)
            for task in tasks:
                bars.update(task, completed=1.0)
        for command, process in zip(commands, processes, strict=True):
            _check(command, process)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if not console.is_terminal:
        names = ", ".join(command.title for command in commands)
        console.print(f"{names}: done in {time.monotonic() - started:.0f} s", highlight=False)


def _start(command: Command) -> subprocess.Popen[bytes]:
    """One thread a process: two unpinned threads on a small machine are many times slower than one."""
    command.log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with command.log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "megatron_seirenes", *command.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )


def _check(command: Command, process: subprocess.Popen[bytes]) -> None:
    if process.poll():
        tail = "\n".join(command.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        raise SeirenesError(
            f"{command.title} failed with exit code {process.returncode}; the end of {command.log}:\n{tail}"
        )


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
