"""What the scheduler needs of whatever judges responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from megatron_seirenes.records import Verdict


class Judge(Protocol):
    """Judges in the background. Verdicts depend on (gold, response) alone, never on order, load or neighbours."""

    def submit(self, key: str, gold: str, response: str) -> None:
        """Queues one response; blocks only when the bounded queue is full. `key` is unique among pending ones."""

    def ready(self) -> Sequence[tuple[str, Verdict]]:
        """The verdicts that arrived since the last call, without waiting."""

    def drain(self) -> Sequence[tuple[str, Verdict]]:
        """Waits for every pending verdict and returns those not yet handed out."""

    def close(self) -> None:
        """Ends the workers."""
