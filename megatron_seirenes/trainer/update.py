"""One flush: groups of one stream become weighted sequences, one optimizer step and its metrics.

Which rank trains on which rollout follows from the summaries alone, so every rank knows all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megatron_seirenes.actor.sequences import TrainingSequence, UpdateReport
from megatron_seirenes.config.schema import ObjectiveSection
from megatron_seirenes.games.game import Game, Stream
from megatron_seirenes.objectives.aggregation import rollout_weights
from megatron_seirenes.records import GroupSummary
from megatron_seirenes.trainer.payloads import Payload
from megatron_seirenes.trainer.ranks import Ranks
from megatron_seirenes.trainer.sharing import Cost, Move, balance, deliver

RolloutKey = tuple[str, str, int]
"""Stream, group id and index within the group."""

Row = dict[str, float | int | None]

TOKEN_MEANS = ("ppo_kl", "reference_kl", "clip_fraction", "entropy", "correction_mean", "correction_outside")
SEQUENCE_MEANS = ("sequence_correction_mean", "sequence_correction_outside")
UPDATE_METRICS = ("loss", "grad_norm", *TOKEN_MEANS, *SEQUENCE_MEANS)


@dataclass(frozen=True, slots=True)
class Part:
    """One rollout of a flush as every rank sees it; `weight` comes from the whole flush, before it is split."""

    key: RolloutKey
    home: int
    tokens: int
    advantage: float
    weight: float


def flush_parts(game: Game, stream: Stream, groups: Sequence[GroupSummary], objective: ObjectiveSection) -> list[Part]:
    """Every rollout of the flush, weighted."""
    max_tokens = game.stage(stream.trains_on).max_tokens
    weights = rollout_weights(groups, stream.balance, objective.aggregation, constant=max_tokens)
    return [
        Part(
            key=(group.stream, group.id, index),
            home=group.home,
            tokens=group.prompt_tokens[index] + group.response_tokens[index],
            advantage=group.advantages[index],
            weight=weight,
        )
        for group, group_weights in zip(groups, weights, strict=True)
        for index, weight in enumerate(group_weights)
    ]


def own_sequences(
    ranks: Ranks, parts: Sequence[Part], held: Mapping[RolloutKey, Payload], cost: Cost
) -> list[TrainingSequence]:
    """The sequences that this rank trains on, in the order of the flush. Collective: each payload moves once, to the
    data-parallel rank that trains on it; costs are balanced over those ranks."""
    places = ranks.places
    moves: list[Move | None] = [None] * len(parts)
    for data_rank, indices in enumerate(balance([cost(part.tokens) for part in parts], places.data_size)):
        for index in indices:
            part = parts[index]
            moves[index] = Move(part.key, places.members(part.home), places.learners(data_rank))
    arrived = deliver(ranks, [move for move in moves if move is not None], held)
    return [_sequence(part, arrived[part.key]) for part in parts if part.key in arrived]


def _sequence(part: Part, payload: Payload) -> TrainingSequence:
    return TrainingSequence(
        prompt_ids=tuple(payload.prompt_ids.tolist()),
        response_ids=tuple(payload.response_ids.tolist()),
        old_logprobs=tuple(payload.old_logprobs.tolist()),
        advantage=part.advantage,
        weight=part.weight,
        reference_logprobs=tuple(payload.reference_logprobs.tolist()),
        behaviour_logprobs=tuple(payload.behaviour_logprobs.tolist()),
        name=payload.rollout_id,
    )


def empty_update_metrics(streams: Sequence[Stream]) -> Row:
    """What a row holds of every stream when no update happened: null for its metrics, no update skipped."""
    row: Row = {f"{name}/{stream.name}": None for stream in streams for name in UPDATE_METRICS}
    row |= {f"streams/{stream.name}/skipped_nonfinite": 0 for stream in streams}
    return row | {f"advantage/{stream.name}/{part}": None for stream in streams for part in ("mean", "std")}


def update_metrics(stream: Stream, groups: Sequence[GroupSummary], report: UpdateReport) -> Row:
    """The metrics of one update; a quantity that the objective does not have stays null."""
    sums = report.sums

    def mean(name: str, per: str) -> float | None:
        return sums[name] / sums[per] if name in sums and sums[per] else None

    advantages = [advantage for group in groups for advantage in group.advantages]
    middle = math.fsum(advantages) / len(advantages)
    variance = math.fsum((advantage - middle) ** 2 for advantage in advantages) / len(advantages)
    name = stream.name
    return {
        f"loss/{name}": report.loss,
        f"grad_norm/{name}": report.grad_norm,
        **{f"{metric}/{name}": mean(metric, "tokens") for metric in TOKEN_MEANS},
        **{f"{metric}/{name}": mean(metric, "sequences") for metric in SEQUENCE_MEANS},
        f"advantage/{name}/mean": middle,
        f"advantage/{name}/std": math.sqrt(variance),
    }
