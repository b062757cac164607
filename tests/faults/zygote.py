"""Starts commands of the package by forking a process that has imported everything, so that a launch costs seconds.

Reads one JSON object a line: `arguments` of the command, `environment` to add, `log` for its output, `spoil` null or
the rank and the update into which a NaN is put. Answers with the process id, and later with `ID CODE` once it has
ended. `strike` is null or a step and a phase: there the process kills itself, as no other process can be sure to when a
phase takes milliseconds. What it starts is the real command, killed like a real one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import select
import signal
import sys
import traceback


def import_everything() -> None:
    from megatron_seirenes.rollouts.vllm_process import prepare_environment

    prepare_environment(on_cuda=False)
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.cpu_worker  # noqa: F401

    import megatron_seirenes.actor.actor
    import megatron_seirenes.bridge.export
    import megatron_seirenes.rollouts.vllm_engine
    import megatron_seirenes.trainer.train
    import megatron_seirenes.trainer.warmup
    import megatron_seirenes.verifier.judge  # noqa: F401


def become(request: dict) -> None:
    """The forked child: runs the command and ends as it ends."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request["environment"])
    code = 1
    try:
        from megatron_seirenes.cli.main import main

        if request["spoil"]:
            spoil_update(*request["spoil"])
        if request["strike"]:
            strike_in(*request["strike"])
        main(request["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def spoil_update(rank: int, number: int) -> None:
    """From its update `number` on, the first sequence that this rank has to learn from has a NaN in it, once."""
    from megatron_seirenes.actor.actor import Actor

    original, seen = Actor.update, [0]

    def update(self, sequences, *arguments, **keywords):
        seen[0] += 1
        if seen[0] >= number and sequences and os.environ.get("RANK") == str(rank):
            seen[0] = -(10**9)
            first = sequences[0]
            spoilt = dataclasses.replace(first, old_logprobs=(math.nan,) * len(first.old_logprobs))
            sequences = [spoilt, *sequences[1:]]
        return original(self, sequences, *arguments, **keywords)

    Actor.update = update


def strike_in(step: int, phase: str) -> None:
    """SIGKILL, as soon as `phase` of `step` or of a later one has begun and the heartbeat says so."""
    from megatron_seirenes.trainer.health import Health

    original = Health.beat

    def beat(self, *arguments, **keywords):
        original(self, *arguments, **keywords)
        if self.phase == phase and self.step >= step:
            os.kill(os.getpid(), signal.SIGKILL)

    Health.beat = beat


def serve() -> None:
    import_everything()
    print("ready", flush=True)
    children: set[int] = set()
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.01 if children else None)
        if readable:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    become(json.loads(line))
                children.add(pid)
                print(pid, flush=True)
        for pid in sorted(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.discard(pid)
                print(pid, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
