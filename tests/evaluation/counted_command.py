"""Runs a command of `seirenes` with its real engine, and writes down what the engine was asked and what it answered.

    python tests/evaluation/counted_command.py LEDGER.jsonl evaluate CONFIG [KEY=VALUE ...]

A line an event, on the disk before the engine goes on: {"event": "asked" | "answered", "request": id, "process": pid}.
The ids of requests hold the question and the number of the sample; whoever kills this process knows what was rolled.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megatron_seirenes.cli.main import main
from megatron_seirenes.evaluation import opening
from megatron_seirenes.records import Request
from megatron_seirenes.rollouts.engine import Completion


class CountedEngine:
    """An engine whose requests and answers are written to a ledger."""

    def __init__(self, engine: Any, ledger: Path):
        self._engine = engine
        self._ledger = ledger.open("a", encoding="utf-8")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: Request) -> None:
        self._note("asked", request.id)
        self._engine.submit(request)

    def step(self) -> Sequence[Completion]:
        completions = self._engine.step()
        for completion in completions:
            self._note("answered", completion.request_id)
        return completions

    def _note(self, event: str, request: str) -> None:
        print(json.dumps({"event": event, "request": request, "process": os.getpid()}), file=self._ledger, flush=True)


def count_into(ledger: Path) -> None:
    """Engines that commands open from here on are counted."""
    open_engine = opening.open_engine
    opening.open_engine = lambda *arguments: CountedEngine(open_engine(*arguments), ledger)


if __name__ == "__main__":
    count_into(Path(sys.argv[1]))
    main(sys.argv[2:])
