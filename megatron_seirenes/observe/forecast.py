"""How long a run will still take: the moving mean of its last steps, against every limit that may end it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from megatron_seirenes.config.schema import Budget
from megatron_seirenes.observe.metrics import Value

WINDOW = 10
"""Steps over which the mean is taken."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a step, or a run so far, has used of its budget."""

    seconds: float = 0.0
    tokens: float = 0.0
    updates: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.tokens + other.tokens, self.updates + other.updates)


def spent_by(row: Mapping[str, Value]) -> Spent:
    """What the step of a metrics row has used."""
    updates = sum(value or 0 for key, value in row.items() if key.startswith("streams/") and key.endswith("/updates"))
    return Spent(row.get("time/step") or 0.0, row.get("tokens/generated") or 0.0, updates)


class Forecast:
    """Seconds left until the last step or the end of the budget, whichever comes first.

    `before` is what a resumed run had used already.
    """

    def __init__(self, total_steps: int, budget: Budget | None = None, before: Spent | None = None):
        self._total_steps = total_steps
        self._budget = budget or Budget()
        self._spent = before or Spent()
        self._recent: deque[Spent] = deque(maxlen=WINDOW)
        self._step = 0

    def observe(self, row: Mapping[str, Value]) -> None:
        """Takes in the row of a finished step."""
        used = spent_by(row)
        self._recent.append(used)
        self._spent = self._spent + used
        self._step = int(row.get("step") or 0)

    def seconds_left(self) -> float | None:
        """None while no step has finished."""
        if not self._recent:
            return None
        mean = _mean(self._recent)
        return max(0.0, min(self._steps_left(mean) * mean.seconds, self._clock_left()))

    def _clock_left(self) -> float:
        hours = self._budget.hours
        return float("inf") if hours is None else hours * 3600 - self._spent.seconds

    def _steps_left(self, mean: Spent) -> float:
        left = [float(self._total_steps - self._step)]
        if self._budget.generated_tokens is not None and mean.tokens > 0:
            left.append((self._budget.generated_tokens - self._spent.tokens) / mean.tokens)
        if self._budget.updates is not None and mean.updates > 0:
            left.append((self._budget.updates - self._spent.updates) / mean.updates)
        return min(left)


def _mean(recent: deque[Spent]) -> Spent:
    total = sum(recent, Spent())
    count = len(recent)
    return Spent(total.seconds / count, total.tokens / count, total.updates / count)
