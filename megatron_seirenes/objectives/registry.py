"""From the name of an objective, as a game's stream gives it, to the loss that the actor minimises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from megatron_seirenes.games.game import ObjectiveName, Stream
from megatron_seirenes.objectives.kl import KlEstimator
from megatron_seirenes.objectives.surrogate import clipped_surrogate, reinforce
from megatron_seirenes.objectives.token_loss import TokenLoss


class LossSettings(Protocol):
    """The numbers that a loss needs; the configuration section `objective` has them."""

    @property
    def clip_low(self) -> float: ...
    @property
    def clip_high(self) -> float: ...
    @property
    def reference_kl(self) -> float: ...
    @property
    def kl_estimator(self) -> KlEstimator: ...


def _clipped(settings: LossSettings) -> TokenLoss:
    return clipped_surrogate(settings.clip_low, settings.clip_high, settings.reference_kl, settings.kl_estimator)


_LOSSES: dict[ObjectiveName, Callable[[LossSettings], TokenLoss]] = {
    "clipped": _clipped,
    "reinforce": lambda settings: reinforce(),
}


def build_loss(stream: Stream, settings: LossSettings) -> TokenLoss:
    """The loss of one stream. Raises KeyError for an objective that is not in the table."""
    return _LOSSES[stream.objective](settings)
