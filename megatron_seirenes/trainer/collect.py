"""After the rollouts of a collection step: score them with the actor, credit them, and say what they show.

π_old is the behaviour policy. Its log-probabilities are the engine's or the actor's, recomputed here under the weights
that made the rollouts, before the step's first update; they are stored with each group and never recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from megatron_seirenes.actor.sequences import TokenSequence
from megatron_seirenes.games.game import Game
from megatron_seirenes.records import Birth, Bundle, Group, Rollout

if TYPE_CHECKING:
    from megatron_seirenes.actor.actor import Actor

Logprobs = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """The actor's log-probabilities of this step's responses, by rollout id; `reference` is empty without a KL term."""

    actor: Mapping[str, Logprobs]
    reference: Mapping[str, Logprobs]


def rollouts_of(bundles: Iterable[Bundle]) -> list[Rollout]:
    """Every rollout, in a fixed order."""
    return [rollout for bundle in bundles for stage in bundle.rollouts.values() for rollout in stage]


def score(actor: Actor, rollouts: Sequence[Rollout], reference_needed: bool) -> Scores:
    """Log-probabilities of every response under the actor's present weights and, if needed, the reference's."""
    sequences = [TokenSequence(rollout.request.prompt_ids, rollout.response_ids) for rollout in rollouts]
    scored = actor.logprobs(sequences)
    reference = actor.reference_logprobs(sequences) if reference_needed else []
    return Scores(
        actor={rollout.id: result.logprobs for rollout, result in zip(rollouts, scored, strict=True)},
        reference={rollout.id: result.logprobs for rollout, result in zip(rollouts, reference, strict=False)},
    )


def mismatch_metrics(rollouts: Sequence[Rollout], scores: Scores) -> dict[str, float | None]:
    """How far engine and actor disagree on the same tokens under the same weights (metrics `mismatch/*`)."""
    gaps = [
        abs(engine - actor)
        for rollout in rollouts
        for engine, actor in zip(rollout.behaviour_logprobs, scores.actor[rollout.id], strict=True)
    ]
    if not gaps:
        return {"mismatch/logprob_abs_mean": None, "mismatch/logprob_abs_max": None, "mismatch/prob_ratio": None}
    return {
        "mismatch/logprob_abs_mean": math.fsum(gaps) / len(gaps),
        "mismatch/logprob_abs_max": max(gaps),
        "mismatch/prob_ratio": math.fsum(math.exp(gap) for gap in gaps) / len(gaps),
    }


def credit_bundles(
    game: Game, bundles: Sequence[Bundle], birth: Birth, scores: Scores, from_engine: bool
) -> dict[str, list[Group]]:
    """Every group of every stream, signal or not, with π_old and reference log-probabilities attached."""
    groups: dict[str, list[Group]] = {stream.name: [] for stream in game.streams}
    for bundle in bundles:
        for stream, credited in game.credit(bundle, birth).items():
            groups[stream].extend(_with_logprobs(group, scores, from_engine) for group in credited)
    return groups


def _with_logprobs(group: Group, scores: Scores, from_engine: bool) -> Group:
    old = tuple(r.behaviour_logprobs if from_engine else scores.actor[r.id] for r in group.rollouts)
    reference = tuple(scores.reference[r.id] for r in group.rollouts) if scores.reference else ()
    return replace(group, old_logprobs=old, reference_logprobs=reference)
