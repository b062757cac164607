"""One flush: groups of one stream become weighted sequences, one optimizer step and its metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from megatron_seirenes.actor.sequences import TrainingSequence, UpdateReport
from megatron_seirenes.config.schema import ObjectiveSection
from megatron_seirenes.games.game import Game, Stream
from megatron_seirenes.objectives.aggregation import rollout_weights
from megatron_seirenes.records import Group

Row = dict[str, float | int | None]

TOKEN_MEANS = ("ppo_kl", "reference_kl", "clip_fraction", "entropy", "correction_mean", "correction_outside")
SEQUENCE_MEANS = ("sequence_correction_mean", "sequence_correction_outside")
UPDATE_METRICS = ("loss", "grad_norm", *TOKEN_MEANS, *SEQUENCE_MEANS)


def training_sequences(
    game: Game, stream: Stream, groups: Sequence[Group], objective: ObjectiveSection
) -> list[TrainingSequence]:
    """The flush as weighted sequences; weights come from the whole flush, before any split over micro-batches."""
    max_tokens = game.stage(stream.trains_on).max_tokens
    weights = rollout_weights(groups, stream.balance, objective.aggregation, constant=max_tokens)
    return [
        TrainingSequence(
            prompt_ids=rollout.request.prompt_ids,
            response_ids=rollout.response_ids,
            old_logprobs=group.old_logprobs[index],
            advantage=group.advantages[index],
            weight=group_weights[index],
            reference_logprobs=group.reference_logprobs[index] if group.reference_logprobs else (),
            behaviour_logprobs=rollout.behaviour_logprobs if objective.correction != "none" else (),
            name=rollout.id,
        )
        for group, group_weights in zip(groups, weights, strict=True)
        for index, rollout in enumerate(group.rollouts)
    ]


def empty_update_metrics(streams: Sequence[Stream]) -> Row:
    """What a row holds of every stream when no update happened: null for its metrics, no update skipped."""
    row: Row = {f"{name}/{stream.name}": None for stream in streams for name in UPDATE_METRICS}
    row |= {f"streams/{stream.name}/skipped_nonfinite": 0 for stream in streams}
    return row | {f"advantage/{stream.name}/{part}": None for stream in streams for part in ("mean", "std")}


def update_metrics(stream: Stream, groups: Sequence[Group], report: UpdateReport) -> Row:
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
