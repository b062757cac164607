"""The questions of a collection step: one batch, and more while a stream that may have more rounds lacks a flush.

That is dynamic sampling for any game: streams reject groups without signal, and other questions are asked
until enough groups have signal, `Stream.max_rounds` batches were asked, or no question of the pool is left.
Further rounds run only the stages that the hungry streams need. What decides are verdicts, never when they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_seirenes.games.game import live_stages
from megatron_seirenes.records import Birth, Bundle

if TYPE_CHECKING:
    from megatron_seirenes.trainer.loop import Parts


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of the step's rounds; `regenerations` and `judge_wait_seconds` are sums over them."""

    bundles: list[Bundle]
    rounds: int
    judge_wait_seconds: float
    regenerations: int


def ask(parts: Parts, birth: Birth, suspended: frozenset[str]) -> Asked:
    """Asks the batches of one step. Raises what `RolloutScheduler.collect` raises."""
    stages = live_stages(parts.game, suspended)
    bundles: list[Bundle] = []
    rounds, waited, regenerations = 0, 0.0, 0
    while problems := parts.sampler.next_batch(without=[bundle.problem.id for bundle in bundles]):
        bundles += parts.scheduler.collect(problems, birth.step, stages)
        rounds += 1
        waited += parts.scheduler.judge_wait_seconds
        regenerations += parts.scheduler.regenerations
        hungry = hungry_streams(parts, birth, bundles, rounds)
        if not hungry:
            break
        stages = live_stages(parts.game, frozenset(stream.name for stream in parts.game.streams) - hungry)
    return Asked(bundles, rounds, waited, regenerations)


def hungry_streams(parts: Parts, birth: Birth, bundles: Sequence[Bundle], rounds: int) -> frozenset[str]:
    """The streams that lack a flush, counting what `bundles` bring, and may have another round."""
    streams = [stream for stream in parts.game.streams if rounds < stream.max_rounds]
    if not streams:
        return frozenset()
    credits = [parts.game.credit(bundle, birth) for bundle in bundles]
    return frozenset(
        stream.name
        for stream in streams
        if len(parts.streams.pending(stream.name))
        + sum(group.has_signal for credit in credits for group in credit[stream.name])
        < stream.flush
    )
