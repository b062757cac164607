"""What a warm-up shows while it runs: a bar with the loss and the time left, or a line now and then in a log."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES = 10
"""Lines a phase in a log."""


class WarmupProgress:
    """`begin`, then `updated` after every update, then `end`, for each phase."""

    def __init__(self, phases: int, mode: Literal["auto", "live", "plain", "none"]):
        self._console = Console(quiet=mode == "none")
        self._live = mode == "live" or (mode == "auto" and self._console.is_terminal)
        self._phases = phases
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task: TaskID | None = None
        self._name, self._steps, self._done = "", 0, 0

    def __enter__(self) -> WarmupProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, number: int, steps: int) -> None:
        """Phase `number` (from 1) starts; it makes at most `steps` updates."""
        self._name, self._steps, self._done = f"warm-up {number}/{self._phases}", steps, 0
        self._task = self._bar.add_task(self._name, total=steps, loss=float("nan"))

    def updated(self, loss: float, rate: float) -> None:
        """One update; `loss` is its moving mean in nats a response token."""
        self._done += 1
        if self._live and self._task is not None:
            self._bar.update(self._task, advance=1, loss=loss)
        elif self._done % max(1, self._steps // LINES) == 0:
            self._console.print(f"{self._name} | update {self._done}/{self._steps} | loss {loss:.3f} | lr {rate:.1e}")

    def end(self, steps: int, loss: float) -> None:
        """The phase is over after `steps` updates."""
        self._console.print(f"{self._name} | done after {steps} updates | loss {loss:.3f}")
