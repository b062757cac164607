"""Launches runs of the tiny world, looks at their heartbeats, and ends them where a test wants."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchrun import free_port

from megatron_seirenes.observe.records import read_records
from megatron_seirenes.observe.writer import read_metrics

PHASES = (
    "rollout",
    "judging",
    "scoring",
    "training clean",
    "training adversary",
    "training robust",
    "sync",
    "snapshot",
)
NOT_COMPARED = ("time/", "throughput/", "verifier/seconds")
PATIENCE = 600.0


@dataclass
class Process:
    """A command that was started. `code` is None while it runs."""

    pid: int
    log: Path
    code: int | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> int:
        assert self.ended.wait(PATIENCE), self.output()
        assert self.code is not None
        return self.code

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)


class Launcher:
    """Talks to the process that forks runs (`zygote.py`). Enter it once a session."""

    def __init__(self, logs: Path):
        self._logs = logs
        self._count = 0
        self._running: dict[int, Process] = {}
        self._started: list[int] = []
        self._news = threading.Condition()

    def __enter__(self) -> Launcher:
        self._logs.mkdir(parents=True, exist_ok=True)
        program = Path(__file__).with_name("zygote.py")
        root = str(program.parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._zygote = subprocess.Popen(
            [sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self._logs / "zygote.log").open("w"),
            text=True,
            bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": path},
        )
        assert self._zygote.stdout is not None
        assert self._zygote.stdout.readline().strip() == "ready", (self._logs / "zygote.log").read_text()[-2000:]
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(timeout=60)

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        spoil: tuple[int, int] | None = None,
        strike: tuple[int, str] | None = None,
    ) -> Process:
        """Starts `seirenes ARGUMENTS`; its output goes to a log of its own."""
        self._count += 1
        log = self._logs / f"{self._count:03d}-{arguments[0]}.log"
        request = {"arguments": arguments, "environment": dict(environment or {})}
        request |= {"log": str(log), "spoil": spoil, "strike": strike}
        with self._news:
            assert self._zygote.stdin is not None
            self._zygote.stdin.write(json.dumps(request) + "\n")
            self._news.wait_for(lambda: self._started, PATIENCE)
            process = self._running[self._started.pop()]
            process.log = log
            return process

    def run(self, *arguments: str) -> Process:
        """Starts a command, waits for it and sees that it ends well."""
        process = self.start(*arguments)
        assert process.wait() == 0, process.output()[-4000:]
        return process

    def _listen(self) -> None:
        assert self._zygote.stdout is not None
        for line in self._zygote.stdout:
            pid, *code = map(int, line.split())
            with self._news:
                if not code:
                    self._running[pid] = Process(pid, Path())
                    self._started.append(pid)
                    self._news.notify_all()
                    continue
            ended = self._running.pop(pid)
            ended.code = code[0]
            ended.ended.set()


def train(
    launcher: Launcher, world: Path, run_dir: Path, *arguments: str, strike: tuple[int, str] | None = None
) -> Process:
    """Starts, or goes on with, a run of the world in `run_dir`; it kills itself at `strike`, a step and a phase."""
    return launcher.start("train", str(world / "run.yaml"), f"run.dir={run_dir}", *arguments, strike=strike)


def train_ranks(
    launcher: Launcher,
    world: Path,
    run_dir: Path,
    size: int,
    *arguments: str,
    spoil: tuple[int, int] | None = None,
    strike: tuple[int, str] | None = None,
    victim: int = 0,
) -> list[Process]:
    """The same on `size` ranks, as a launcher would start them, in order; rank `victim` kills itself at `strike`."""
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        launcher.start(
            "train",
            str(world / "run.yaml"),
            f"run.dir={run_dir}",
            *arguments,
            environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"},
            spoil=spoil,
            strike=strike if rank == victim else None,
        )
        for rank in range(size)
    ]


@dataclass(frozen=True)
class Beat:
    """What a heartbeat file says; `phase` is `starting` while the process has not written one."""

    step: int
    phase: str


def beat_of(run_dir: Path, pid: int) -> Beat:
    """What the process `pid` is doing."""
    try:
        content = json.loads((run_dir / "heartbeat.json").read_text())
    except (OSError, ValueError):
        return Beat(0, "starting")
    return Beat(content["step"], content["phase"]) if content["pid"] == pid else Beat(0, "starting")


def wait_for(run_dir: Path, process: Process, reached: Callable[[Beat], bool]) -> bool:
    """Returns as soon as the process does what `reached` looks for; False when it ended before."""
    deadline = time.monotonic() + PATIENCE
    while not process.ended.is_set():
        assert time.monotonic() < deadline, process.output()[-4000:]
        if reached(beat_of(run_dir, process.pid)):
            return True
        time.sleep(0.0005)
    return False


def outcome(run_dir: Path) -> dict[str, Any]:
    """Everything a finished run leaves behind that must not depend on how often it was ended: weights, decisions."""
    rows = [
        {key: value for key, value in row.items() if not key.startswith(NOT_COMPARED)}
        for row in read_metrics(run_dir / "metrics.jsonl")
    ]
    rollouts = sorted((run_dir / "rollouts").glob("*.gz"))
    files = [*rollouts, run_dir / "policy" / "model.safetensors"]
    return {
        "rows": rows,
        "questions": [_questions(path) for path in rollouts],
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Which parts of two outcomes differ."""
    return [key for key in one if one[key] != other[key]]


def children_of(pid: int) -> Sequence[int]:
    """The processes that any thread of `pid` started and that still live."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread may have ended meanwhile
            found += map(int, path.read_text().split())
    return found


def _questions(path: Path) -> list[str]:
    return list(dict.fromkeys(record["problem_id"] for record in read_records(path)))
