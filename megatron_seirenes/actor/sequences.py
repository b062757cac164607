"""What the actor is given and gives back: plain records of token ids and numbers, no tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Tokens(Protocol):
    """Anything with a prompt and a response."""

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...

    @property
    def response_ids(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A response to be scored."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """A response to be learned from; the log-probabilities are one a response token (natural logarithm).

    `advantage` and `weight` hold for every token of the response. `weight` already carries every average of the
    objective (objectives/aggregation.py). `reference_logprobs` may be empty when the loss has no KL term, and
    `behaviour_logprobs`, the engine's, when it does not correct for the engine. `name` is for people: the rollout's id.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    old_logprobs: tuple[float, ...]
    advantage: float
    weight: float
    reference_logprobs: tuple[float, ...] = ()
    behaviour_logprobs: tuple[float, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class ResponseLogprobs:
    """One value a response token: log-probability (natural logarithm) and entropy (nats) of the whole softmax."""

    logprobs: tuple[float, ...]
    entropy: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """One optimizer step, over all ranks: the same on every rank.

    `loss` is the sum that was minimised, `grad_norm` the norm before clipping, `sums` the sums of the loss function.
    `tokens` counts response tokens. `skipped`: the loss, one of its sums or the gradient was not finite, and nothing
    was changed on any rank; `suspects` then names the sequences of the micro-batches where that showed, on all ranks.
    """

    loss: float
    grad_norm: float
    learning_rate: float
    sums: Mapping[str, float]
    tokens: int
    skipped: bool
    suspects: tuple[str, ...] = ()
