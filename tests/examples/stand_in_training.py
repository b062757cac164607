"""Stands in for `python -m megatron_seirenes train` in a rehearsal: takes steps, saves when it is told to, goes on.

Uses the package's own StopListener, exit code and marker. Appends to RUN_DIR/trace: rank, what happened, step.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from megatron_seirenes.errors import StoppedBySignal
from megatron_seirenes.trainer.signals import StopListener

LAST_STEP = 4


def main(words: list[str]) -> int:
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    folder, rank = Path(settings["run.dir"]), os.environ["RANK"]
    saved = folder / f"saved-{rank}"
    step = int(saved.read_text()) if saved.exists() else 0

    def trace(what: str) -> None:
        with (folder / "trace").open("a") as file:
            file.write(f"{rank} of {os.environ['WORLD_SIZE']} at {os.environ['MASTER_ADDR']}: {what} {step}\n")

    if settings.get("fails") == rank:
        return 1
    trace("starts at")
    with StopListener() as stop:
        (folder / f"ready-{rank}").touch()
        while step < LAST_STEP:
            while not stop.requested and not (folder / f"release-{step}").exists():
                time.sleep(0.02)
            if stop.requested:
                saved.write_text(str(step))
                trace("saved")
                if rank == "0":
                    (folder / "STOPPED").write_text("by a signal")
                return StoppedBySignal.exit_code
            step += 1
    trace("ends at")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
