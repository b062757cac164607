"""Stands in for `python -m torch.distributed.run`: two ranks of the stand-in training, signals as torchrun treats them.

Like torchrun it passes a signal on to every rank once, waits for them, and then ends with 1 whatever they say.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

TRAINING = Path(__file__).resolve().parent / "stand_in_training.py"
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def main() -> int:
    told: list[int] = []
    for number in HANDLED:
        signal.signal(number, lambda number, frame: told.append(number))
    ranks = [
        subprocess.Popen(
            [sys.executable, TRAINING, *sys.argv[1:]],
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "here"},
            start_new_session=True,
        )
        for rank in range(2)
    ]
    codes: list[int | None] = [None, None]
    passed_on = False
    while None in codes:
        if told and not passed_on:
            passed_on = True
            for rank in ranks:
                rank.send_signal(told[0])
        for number, rank in enumerate(ranks):
            try:
                codes[number] = rank.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
    return 1 if told or any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
