"""A toy run as a process of its own, with a watchdog, whose engine hangs once: `toy_program.py RUN_DIR MINUTES HANG`.

HANG names how a step of the engine hangs in collection step 3: `sleeping` (other threads run), `locked` (C code keeps
the interpreter's lock), or `never`.
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "trainer"))
from toy_run import toy_config, toy_trainer

from megatron_seirenes.trainer import health
from megatron_seirenes.trainer.health import Health
from megatron_seirenes.trainer.snapshot import complete_snapshots

HANGS = {"sleeping": lambda: time.sleep(60), "locked": lambda: ctypes.PyDLL(None).sleep(60)}


def main(run_dir: str, minutes: str, hang: str) -> None:
    config = toy_config(Path(run_dir))
    trainer = toy_trainer(config, resume=bool(complete_snapshots(Path(run_dir) / "snapshots")))
    engine, step = trainer.parts.engine, trainer.parts.engine.step

    def hanging_step():
        if trainer.cursor.step == 2 and hang in HANGS:
            HANGS[hang]()
        return step()

    engine.step = hanging_step
    health.GRACE_SECONDS = 1.0
    directory = trainer.directory
    trainer.health = Health(directory.heartbeat, directory.logs, 0, float(minutes), print)
    with trainer.health, trainer.watch:
        print(trainer.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
