"""After the rollouts of a collection step: score them with the actor, credit them, and say what they show.

π_old is the behaviour policy. Its log-probabilities are the engine's or the actor's, recomputed here under the weights
that made the rollouts, before the step's first update; they are stored with each group and never recomputed.

Each replica has the bundles of its share of the questions. It credits them itself and tells the others a `Harvest`:
what every rank needs to take the same decisions, without tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from megatron_seirenes.actor.sequences import ResponseLogprobs, TokenSequence
from megatron_seirenes.games.game import Game
from megatron_seirenes.observe.collection import Tally, tally_bundles
from megatron_seirenes.records import Birth, Bundle, Group, GroupSummary, Rollout
from megatron_seirenes.trainer.payloads import summary_of
from megatron_seirenes.trainer.ranks import Ranks, of_leaders
from megatron_seirenes.trainer.rounds import Asked
from megatron_seirenes.trainer.sharing import Cost, Move, deliver, scoring_parts

if TYPE_CHECKING:
    from megatron_seirenes.actor.actor import Actor

Logprobs = tuple[float, ...]
Credited = Mapping[str, Sequence[Group]]
"""The groups of one bundle, by stream."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The actor's log-probabilities of this step's responses, by rollout id; `reference` is empty without a KL term."""

    actor: Mapping[str, Logprobs]
    reference: Mapping[str, Logprobs]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Sums over tokens of how far engine and actor disagree; to be added over replicas."""

    tokens: int = 0
    total: float = 0.0
    largest: float = 0.0
    ratios: float = 0.0

    def __add__(self, other: Gaps) -> Gaps:
        return Gaps(
            self.tokens + other.tokens,
            self.total + other.total,
            _larger(self.largest, other.largest),
            self.ratios + other.ratios,
        )


@dataclass(frozen=True, slots=True)
class Yield:
    """What one question brought: its groups by stream, signal or not, whether it was mastered, and what the game's
    memory notes of it."""

    problem_id: str
    groups: Mapping[str, tuple[GroupSummary, ...]]
    mastered: bool | None
    note: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Harvest:
    """What a replica tells the others of its share of a step; in the order of its questions.

    `judge_wait` is the seconds it waited for verdicts; it is `inexact` when requests had to be asked again.
    """

    yields: tuple[Yield, ...] = ()
    tally: Tally = field(default_factory=Tally)
    gaps: Gaps = field(default_factory=Gaps)
    judge_wait: float = 0.0
    inexact: bool = False

    def __add__(self, other: Harvest) -> Harvest:
        return Harvest(
            self.yields + other.yields,
            self.tally + other.tally,
            self.gaps + other.gaps,
            max(self.judge_wait, other.judge_wait),
            self.inexact or other.inexact,
        )


def rollouts_of(bundles: Iterable[Bundle]) -> list[Rollout]:
    """Every rollout, in a fixed order."""
    return [rollout for bundle in bundles for stage in bundle.rollouts.values() for rollout in stage]


def score(actor: Actor, ranks: Ranks, rollouts: Sequence[Rollout], reference_needed: bool, cost: Cost) -> Scores:
    """Log-probabilities of every response under the actor's present weights and, if needed, the reference's.

    Collective. `rollouts` are this replica's; the actor's data-parallel ranks share the work, the results come back.
    """
    places = ranks.places
    sizes = [(r.id, len(r.request.prompt_ids) + len(r.response_ids)) for r in rollouts]
    by_replica = of_leaders(ranks, sizes)
    scorers = scoring_parts(places, [[cost(tokens) for _, tokens in sizes] for sizes in by_replica])
    out, back = [], []
    for replica, (sizes, chosen) in enumerate(zip(by_replica, scorers, strict=True)):
        home = places.members(replica)
        for (rollout_id, _), data_rank in zip(sizes, chosen, strict=True):
            learners = places.learners(data_rank)
            out.append(Move(rollout_id, holders=home, takers=learners))
            back.append(Move(rollout_id, holders=learners, takers=home))
    held = {r.id: TokenSequence(r.request.prompt_ids, r.response_ids) for r in rollouts}
    mine: dict[str, TokenSequence] = deliver(ranks, out, held)
    sequences = list(mine.values())
    scored = _by_id(mine, actor.logprobs(sequences))
    reference = _by_id(mine, actor.reference_logprobs(sequences)) if reference_needed else {}
    return Scores(deliver(ranks, back, scored), deliver(ranks, back, reference) if reference_needed else {})


def _by_id(ids: Iterable[str], results: Iterable[ResponseLogprobs]) -> dict[str, Logprobs]:
    return {rollout_id: result.logprobs for rollout_id, result in zip(ids, results, strict=True)}


def measure_gaps(rollouts: Sequence[Rollout], scores: Scores) -> Gaps:
    """How far engine and actor disagree on the same tokens under the same weights."""
    gaps = [
        abs(engine - actor)
        for rollout in rollouts
        for engine, actor in zip(rollout.behaviour_logprobs, scores.actor[rollout.id], strict=True)
    ]
    total = math.fsum(gaps)
    largest = math.nan if math.isnan(total) else max(gaps, default=0.0)
    return Gaps(len(gaps), total, largest, math.fsum(map(_exp, gaps)))


def mismatch_metrics(gaps: Gaps) -> dict[str, float | None]:
    """The metrics `mismatch/*` of all replicas' gaps; null without tokens."""
    return {
        "mismatch/logprob_abs_mean": gaps.total / gaps.tokens if gaps.tokens else None,
        "mismatch/logprob_abs_max": gaps.largest if gaps.tokens else None,
        "mismatch/prob_ratio": gaps.ratios / gaps.tokens if gaps.tokens else None,
    }


def credit_bundles(
    game: Game, bundles: Sequence[Bundle], birth: Birth, scores: Scores, from_engine: bool
) -> list[Credited]:
    """For each bundle every group of every stream, signal or not, with π_old and reference log-probabilities."""
    return [
        {
            stream: [_with_logprobs(group, scores, from_engine) for group in credited]
            for stream, credited in game.credit(bundle, birth).items()
        }
        for bundle in bundles
    ]


def harvest_of(game: Game, asked: Asked, credited: Sequence[Credited], gaps: Gaps, home: int) -> Harvest:
    """What replica `home` tells the others of its bundles and of the groups they were credited with."""
    yields = tuple(
        Yield(
            problem_id=bundle.problem.id,
            groups={stream: tuple(summary_of(group, home) for group in found) for stream, found in groups.items()},
            mastered=game.mastered(bundle),
            note=None if game.memory is None else game.memory.note(bundle),
        )
        for bundle, groups in zip(asked.bundles, credited, strict=True)
    )
    tally = tally_bundles(game, asked.bundles)
    return Harvest(yields, tally, gaps, asked.judge_wait_seconds, asked.regenerations > 0)


def joined(harvests: Iterable[Harvest], order: Sequence[str]) -> Harvest:
    """All replicas' harvests as one, its questions in the given order."""
    total = sum(harvests, Harvest())
    place = {problem_id: number for number, problem_id in enumerate(order)}
    return replace(total, yields=tuple(sorted(total.yields, key=lambda one: place[one.problem_id])))


def _with_logprobs(group: Group, scores: Scores, from_engine: bool) -> Group:
    old = tuple(r.behaviour_logprobs if from_engine else scores.actor[r.id] for r in group.rollouts)
    reference = tuple(scores.reference[r.id] for r in group.rollouts) if scores.reference else ()
    return replace(group, old_logprobs=old, reference_logprobs=reference)


def _larger(one: float, other: float) -> float:
    """The larger one, and NaN when either is."""
    return one if one > other or math.isnan(one) else other


def _exp(gap: float) -> float:
    return math.inf if gap > 700.0 else math.exp(gap)
