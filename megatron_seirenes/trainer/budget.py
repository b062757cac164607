"""When a run is over: a pure decision on counters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from megatron_seirenes.config.schema import RunSection


@dataclass(slots=True)
class Spent:
    """What a run has used so far, over all its resumes. `seconds` is time inside collection steps."""

    seconds: float = 0.0
    generated_tokens: int = 0
    updates: int = 0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Spent:
        return cls(**state)


def reason_to_end(run: RunSection, steps: int, spent: Spent) -> str | None:
    """Why the run ends at this step boundary, or None to go on."""
    budget = run.budget
    if steps >= run.collection_steps:
        return f"{steps} collection steps done"
    if budget.hours is not None and spent.seconds >= budget.hours * 3600:
        return f"budget of {budget.hours:g} hours used"
    if budget.generated_tokens is not None and spent.generated_tokens >= budget.generated_tokens:
        return f"budget of {budget.generated_tokens:,} generated tokens used"
    if budget.updates is not None and spent.updates >= budget.updates:
        return f"budget of {budget.updates:,} optimizer updates used"
    return None
