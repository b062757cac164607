"""The records that travel down the road, from a problem to an update.

    Problem -> Request -> Rollout -> Group -> GroupSummary (in its stream) -> update
                             \\-> Verdict     Bundle = everything one problem produced in one collection step

Plain immutable data: no tensors, no clocks, no processes. Token ids and log-probabilities are tuples, so that a record
can be hashed, compared, stored and sent as it is. A response is never re-tokenised: `Rollout.response_ids` is what was
sampled and what is trained on; `Rollout.text` is for judges, hints and people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length", "abort"]
VerdictReason = Literal["match", "mismatch", "no_answer", "timeout", "unparsable"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with a known answer. `id` is unique within a run and stable between runs."""

    id: str
    question: str
    answer: str
    source: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `max_tokens` counts response tokens, the stop token included."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence asked of a policy.

    `path` holds the sample index of every ancestor and then its own: the fifth R3 answer under the second hint is
    `(1, 4)`. `given_ids` asks the engine to score these response tokens instead of sampling any.
    """

    id: str
    problem_id: str
    stage: str
    path: tuple[int, ...]
    role: str
    policy: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    parent: str | None = None
    given_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """A finished request.

    `behaviour_logprobs[i]` is the log-probability (natural logarithm) of `response_ids[i]` under the policy that made
    it, as the engine computed it. `finish_reason` is `length` when the token limit cut the response.
    """

    request: Request
    response_ids: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: int
    text: str

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said of one response. `seconds` is CPU time."""

    correct: bool
    extracted: str | None
    reason: VerdictReason
    seconds: float


@dataclass(frozen=True, slots=True)
class Birth:
    """The counters at a group's generation, from which its lag is counted."""

    step: int
    policy_version: int
    stream_updates: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Group:
    """Rollouts that share one prompt, with their credit; the unit that a stream holds and trains on.

    `has_signal` is decided on integer counts by the game's credit function: false when every advantage is zero, or
    would be if lengths did not count. An adversary group is a single hint, or the hints of a question that compete.
    """

    id: str
    problem_id: str
    stream: str
    stage: str
    rollouts: tuple[Rollout, ...]
    rewards: tuple[float, ...]
    advantages: tuple[float, ...]
    has_signal: bool
    birth: Birth
    old_logprobs: tuple[tuple[float, ...], ...] = ()
    reference_logprobs: tuple[tuple[float, ...], ...] = ()

    @property
    def response_tokens(self) -> tuple[int, ...]:
        """The length of each rollout's response."""
        return tuple(len(rollout.response_ids) for rollout in self.rollouts)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as decisions see it: no tokens, so that every rank can hold every one.

    `prompt_tokens`, `response_tokens` and `advantages` have one entry a rollout. The tokens and log-probabilities lie
    with rollout replica `home`, which made them, under (`stream`, `id`).
    """

    id: str
    problem_id: str
    stream: str
    stage: str
    prompt_tokens: tuple[int, ...]
    response_tokens: tuple[int, ...]
    advantages: tuple[float, ...]
    has_signal: bool
    birth: Birth
    home: int = 0


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything one problem produced in one collection step.

    `rollouts[stage]` is ordered by path. `verdicts` and `refused` are keyed by rollout id: a rollout that the role's
    gate refused has a reason in `refused` and no children.
    """

    problem: Problem
    step: int
    rollouts: Mapping[str, tuple[Rollout, ...]]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def of_stage(self, stage: str) -> tuple[Rollout, ...]:
        """The rollouts of `stage` in order of path; empty when the stage was not run."""
        return self.rollouts.get(stage, ())

    def children(self, stage: str, parent: Rollout) -> tuple[Rollout, ...]:
        """The rollouts of `stage` that hang from `parent`, in order of path."""
        return tuple(rollout for rollout in self.of_stage(stage) if rollout.request.parent == parent.id)
