"""The questions of a collection step: one batch, and more while a stream that may have more rounds lacks a flush.

That is dynamic sampling for any game: streams reject groups without signal, and other questions are asked
until enough groups have signal, `Stream.max_rounds` batches were asked, or no question of the pool is left.
Further rounds run only the stages that the hungry streams need. What decides are verdicts, never when they came.

Each replica asks its share of every batch; after each, the replicas tell each other whether they were stopped and how
many groups with signal they have, so that all go on, or stop, alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from megatron_seirenes.games.game import live_stages
from megatron_seirenes.records import Birth, Bundle
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.trainer.agreement import check_agreement
from megatron_seirenes.trainer.ranks import any_rank, of_leaders
from megatron_seirenes.trainer.sharing import share_of

if TYPE_CHECKING:
    from megatron_seirenes.trainer.parts import Parts


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of the step's rounds here; `regenerations` and `judge_wait_seconds` are sums over them.

    `bundles` are this replica's; `order` has the ids of all questions of the step, in the order they were drawn.
    """

    bundles: list[Bundle]
    order: tuple[str, ...]
    rounds: int
    judge_wait_seconds: float
    regenerations: int


def ask(parts: Parts, birth: Birth, suspended: frozenset[str]) -> Asked:
    """Asks the batches of one step. Collective.

    Raises what `RolloutScheduler.collect` raises (CollectionStopped on every rank when it is raised on one), and
    RanksDisagree when ranks drew other questions.
    """
    ranks, places = parts.ranks, parts.ranks.places
    stages = live_stages(parts.game, suspended)
    bundles: list[Bundle] = []
    order: list[str] = []
    rounds, waited, regenerations = 0, 0.0, 0
    while problems := parts.sampler.next_batch(without=order):
        drawn = [problem.id for problem in problems]
        check_agreement(ranks, f"questions of step {birth.step}", partial(dict, questions=drawn))
        stopped = True
        with suppress(CollectionStopped):
            own = share_of(problems, places.replica_of(ranks.rank), places.replicas)
            bundles += parts.scheduler.collect(own, birth.step, stages)
            stopped = False
        if any_rank(ranks, stopped):
            raise CollectionStopped(f"step {birth.step} was stopped in round {rounds + 1}")
        order += drawn
        rounds += 1
        waited += parts.scheduler.judge_wait_seconds
        regenerations += parts.scheduler.regenerations
        hungry = hungry_streams(parts, birth, bundles, rounds)
        if not hungry:
            break
        stages = live_stages(parts.game, frozenset(stream.name for stream in parts.game.streams) - hungry)
    return Asked(bundles, tuple(order), rounds, waited, regenerations)


def hungry_streams(parts: Parts, birth: Birth, bundles: Sequence[Bundle], rounds: int) -> frozenset[str]:
    """The streams that lack a flush, counting what all replicas' `bundles` bring, and may have another round."""
    streams = [stream for stream in parts.game.streams if rounds < stream.max_rounds]
    if not streams:
        return frozenset()
    credits = [parts.game.credit(bundle, birth) for bundle in bundles]
    brought = {
        stream.name: sum(group.has_signal for credit in credits for group in credit[stream.name]) for stream in streams
    }
    of_replicas = of_leaders(parts.ranks, brought)
    return frozenset(
        stream.name
        for stream in streams
        if len(parts.streams.pending(stream.name)) + sum(counts[stream.name] for counts in of_replicas) < stream.flush
    )
