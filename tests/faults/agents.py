"""Runs under real torchrun agents ("nodes") on the loopback, and the processes of a run that they started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from launching import PATIENCE, children_of
from torchrun import free_port

SIGNALS = ["--signals-to-handle=SIGTERM,SIGINT,SIGUSR1", "--shutdown-timeout=300"]
PACKAGE = ("-m", "megatron_seirenes")
ROOT = Path(__file__).resolve().parents[2]


class Agent:
    """A torchrun agent whose ranks train the world in `run_dir`; agents started later append to its `log`.

    `program` is what stands before the command line of `seirenes`.
    """

    def __init__(
        self,
        world: Path,
        run_dir: Path,
        log: Path,
        options: Sequence[str],
        arguments: Sequence[str] = (),
        program: Sequence[str] = PACKAGE,
    ):
        command = [sys.executable, "-m", "torch.distributed.run", *options, *program, "train"]
        command += [str(world / "run.yaml"), f"run.dir={run_dir}", *arguments]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": path}
        self.run_dir = run_dir
        self.log = log
        with log.open("a") as file:
            self.popen = subprocess.Popen(command, env={**os.environ, **settings}, stdout=file, stderr=file)

    def wait(self) -> int:
        return self.popen.wait(PATIENCE)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def ranks(self) -> Sequence[int]:
        """The ids of the ranks that this agent runs now."""
        return children_of(self.popen.pid)


def start_nodes(
    world: Path,
    run_dir: Path,
    nodes: int,
    *arguments: str,
    processes: int = 1,
    restarts: int = 0,
    program: Sequence[str] = PACKAGE,
) -> list[Agent]:
    """Starts `nodes` agents as `examples/launch/torchrun.sh` would on as many machines; in order of node ranks."""
    where = ["--master-addr=127.0.0.1", f"--master-port={free_port()}", f"--max-restarts={restarts}", *SIGNALS]
    return [
        Agent(
            world,
            run_dir,
            world / f"{run_dir.name}-node-{node}.log",
            [f"--nnodes={nodes}", f"--node-rank={node}", f"--nproc-per-node={processes}", *where],
            arguments,
            program,
        )
        for node in range(nodes)
    ]


def phase_reached(first: Agent, phase: str, step: int = 1) -> int:
    """Waits until rank 0 of the run, started by `first`, is in `phase` of this step or a later one; returns its id."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and first.popen.poll() is None:
        try:
            beat = json.loads((first.run_dir / "heartbeat.json").read_text())
        except (OSError, ValueError):
            beat = {"phase": None, "pid": 0, "step": 0}
        if beat["phase"] == phase and beat["step"] >= step and Path(f"/proc/{beat['pid']}").exists():
            return int(beat["pid"])
        time.sleep(0.002)
    raise AssertionError(f"the run did not come to {phase}\n{first.output()[-3000:]}")
