"""One stream's waiting room: groups in the order they came, bounded, and none twice.

Invariants:
  * every accepted group leaves exactly once: taken for training, evicted as stale or evicted by overflow; what has not
    left is pending;
  * pending groups keep the order of their arrival, and there are never more than `capacity`;
  * a group that was offered before is refused, which a faulty resume would do: collection steps never go backwards,
    and the ids of the newest one are remembered.

Holds summaries: the tokens of a group lie elsewhere. Knows nothing of update counters: the owner says which groups are
stale (`streams.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from megatron_seirenes.records import GroupSummary
from megatron_seirenes.streams.serialization import summary_from_plain, summary_to_plain


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became of one offer: how many groups came, had no signal, and how many old ones they pushed out."""

    candidates: int
    zero_advantage: int
    evicted_overflow: int


class StreamQueue:
    """A bounded first-in, first-out queue of groups. Raises ValueError unless 1 <= flush <= capacity."""

    def __init__(self, name: str, *, flush: int, capacity: int):
        if not 1 <= flush <= capacity:
            raise ValueError(f"stream {name}: flush {flush} must be at least 1 and at most the capacity, {capacity}")
        self.name = name
        self.flush = flush
        self.capacity = capacity
        self._pending: deque[GroupSummary] = deque()
        self._newest_step = -1
        self._offered_ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def pending(self) -> tuple[GroupSummary, ...]:
        """The waiting groups, oldest first."""
        return tuple(self._pending)

    @property
    def full(self) -> bool:
        return len(self._pending) >= self.capacity

    def accept(self, groups: Sequence[GroupSummary]) -> Arrival:
        """Drops groups without signal and appends the rest; beyond capacity the oldest leave.

        Raises ValueError for a group of another stream or one that came before.
        """
        for group in groups:
            self._register(group)
        arrived = [group for group in groups if group.has_signal]
        self._pending.extend(arrived)
        overflow = max(0, len(self._pending) - self.capacity)
        for _ in range(overflow):
            self._pending.popleft()
        return Arrival(len(groups), len(groups) - len(arrived), overflow)

    def evict(self, is_stale: Callable[[GroupSummary], bool]) -> int:
        """Removes every stale group, wherever it stands; returns how many."""
        before = len(self._pending)
        self._pending = deque(group for group in self._pending if not is_stale(group))
        return before - len(self._pending)

    def take(self) -> list[GroupSummary] | None:
        """Removes and returns exactly `flush` groups, the oldest first; None when there are fewer."""
        if len(self._pending) < self.flush:
            return None
        return [self._pending.popleft() for _ in range(self.flush)]

    def state_dict(self) -> dict[str, Any]:
        return {
            "pending": [summary_to_plain(group) for group in self._pending],
            "newest_step": self._newest_step,
            "offered_ids": sorted(self._offered_ids),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes back to where `state_dict` was taken; a capacity that has shrunk since evicts at the next arrival."""
        self._pending = deque(summary_from_plain(plain) for plain in state["pending"])
        self._newest_step = state["newest_step"]
        self._offered_ids = set(state["offered_ids"])

    def _register(self, group: GroupSummary) -> None:
        step = group.birth.step
        if group.stream != self.name:
            raise ValueError(f"group {group.id} of stream {group.stream} was offered to stream {self.name}")
        if step > self._newest_step:
            self._newest_step, self._offered_ids = step, set()
        if step < self._newest_step or group.id in self._offered_ids:
            raise ValueError(
                f"stream {self.name}: group {group.id} of step {step} was offered before "
                f"(newest step seen: {self._newest_step})"
            )
        self._offered_ids.add(group.id)
