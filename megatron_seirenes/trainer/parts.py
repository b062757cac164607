"""What the loop joins, and what it asks of whoever starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from megatron_seirenes.games.game import Game
from megatron_seirenes.objectives.token_loss import TokenLoss
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.rollouts.scheduler import RolloutScheduler
from megatron_seirenes.streams.streams import Streams
from megatron_seirenes.trainer.ranks import ALONE, Ranks
from megatron_seirenes.trainer.sharing import Cost

if TYPE_CHECKING:
    from megatron_seirenes.actor.actor import Actor
    from megatron_seirenes.rollouts.engine import Engine


class StopRequest(Protocol):
    """Whether the run has been told to stop; read at safe points only."""

    @property
    def requested(self) -> bool: ...


Evaluate = Callable[[int], Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop joins. `sync` moves the actor's weights into an engine, as a version of the policy (collective);
    `cost` is what training on a sequence of so many tokens costs, for balancing ranks."""

    game: Game
    sampler: ProblemSampler
    streams: Streams
    scheduler: RolloutScheduler
    actor: Actor
    engine: Engine
    losses: Mapping[str, TokenLoss]
    sync: Callable[[Engine, int], None]
    evaluate: Evaluate | None = None
    ranks: Ranks = ALONE
    cost: Cost = float
