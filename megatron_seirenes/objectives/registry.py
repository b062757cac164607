"""From the name of an objective, as a game's stream gives it, to the loss that the actor minimises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from megatron_seirenes.games.game import ObjectiveName, Stream
from megatron_seirenes.objectives.correction import Correction, CorrectionKind, CorrectionLevel
from megatron_seirenes.objectives.kl import KlEstimator
from megatron_seirenes.objectives.surrogate import RatioLevel, clipped_surrogate, reinforce
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
    @property
    def kl_unbiased(self) -> bool: ...
    @property
    def ratio(self) -> RatioLevel: ...
    @property
    def entropy_bonus(self) -> float: ...
    @property
    def correction(self) -> CorrectionKind: ...
    @property
    def correction_level(self) -> CorrectionLevel: ...
    @property
    def correction_high(self) -> float: ...
    @property
    def correction_low(self) -> float: ...


def _correction(settings: LossSettings) -> Correction:
    return Correction(
        settings.correction, settings.correction_level, settings.correction_high, settings.correction_low
    )


def _clipped(settings: LossSettings) -> TokenLoss:
    return clipped_surrogate(
        settings.clip_low,
        settings.clip_high,
        settings.reference_kl,
        settings.kl_estimator,
        kl_unbiased=settings.kl_unbiased,
        ratio=settings.ratio,
        entropy_bonus=settings.entropy_bonus,
        correction=_correction(settings),
    )


def _reinforce(settings: LossSettings) -> TokenLoss:
    return reinforce(entropy_bonus=settings.entropy_bonus, correction=_correction(settings))


_LOSSES: dict[ObjectiveName, Callable[[LossSettings], TokenLoss]] = {"clipped": _clipped, "reinforce": _reinforce}


def build_loss(stream: Stream, settings: LossSettings) -> TokenLoss:
    """The loss of one stream. Raises KeyError for an objective that is not in the table."""
    return _LOSSES[stream.objective](settings)
