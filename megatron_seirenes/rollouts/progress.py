"""What a collection reports while it runs: how far it is, and when each rollout and each verdict was under way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RolloutSpan:
    """When one rollout lived: in engine steps of its collection, and in seconds of the injected clock.

    `submit_step` counts the engine steps done before it was queued, `end_step` is the step in which it ended: a
    rollout of n tokens that never waits has `end_step - submit_step == n`. Seconds are None without a clock.
    """

    request_id: str
    problem_id: str
    stage: str
    submit_step: int
    end_step: int
    start_seconds: float | None
    end_seconds: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class JudgingSpan:
    """From handing one response to the judge until its verdict was seen, in seconds of the injected clock.

    Verdicts are looked for between engine steps, so a span may end up to one engine step late.
    """

    request_id: str
    problem_id: str
    stage: str
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a collection is. `submitted` still grows while children may follow; `tokens` are generated ones."""

    step: int
    engine_steps: int
    submitted: int
    finished: int
    judged: int
    tokens: int
