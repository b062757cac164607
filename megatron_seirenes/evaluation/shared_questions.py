"""A benchmark's questions split over the rollout replicas of a run, and their answers brought together again.

Who is asked what follows from the order of the questions alone, and seeds from each question alone, so a benchmark has
the same numbers on any number of replicas. Every rank comes to the same meetings: what ends one replica's asking, a
stop or an error, ends it on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.evaluation.answers import Record
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.trainer.ranks import Ranks, any_rank, of_leaders
from megatron_seirenes.trainer.sharing import share_of

Answers = Mapping[str, Sequence[Record]]


def own_share[Item](ranks: Ranks, questions: Sequence[Item]) -> Sequence[Item]:
    """The questions that this rank's replica asks."""
    places = ranks.places
    return share_of(questions, places.replica_of(ranks.rank), places.replicas)


def joined(ranks: Ranks, ask: Callable[[], Answers]) -> Answers:
    """What `ask` returns on all replicas, in the order of the questions, on every rank. Collective.

    Raises what `ask` raised here; CollectionStopped where another rank was stopped, SeirenesError where one failed.
    """
    answers: Answers = {}
    failure: CollectionStopped | SeirenesError | None = None
    try:
        answers = ask()
    except (CollectionStopped, SeirenesError) as error:
        failure = error
    stopped = any_rank(ranks, isinstance(failure, CollectionStopped))
    failures = [told for told in ranks.gather(None if failure is None else str(failure)) if told is not None]
    if failure is not None:
        raise failure
    if stopped:
        raise CollectionStopped("another replica was stopped")
    if failures:
        raise SeirenesError(f"the evaluation failed on another rank: {failures[0]}")
    return {question: records for part in of_leaders(ranks, answers) for question, records in part.items()}
