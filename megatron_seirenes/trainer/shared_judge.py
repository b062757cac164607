"""The judge of a replica of several ranks: each rank judges its share, and the verdicts are gathered.

Ranks of a replica see the same rollouts in the same order, so the n-th submission is judged by rank n modulo the size
of the replica. Nothing is decided on verdicts before `drain`, which is collective in the replica.
"""

from __future__ import annotations

from collections.abc import Sequence

from megatron_seirenes.records import Verdict
from megatron_seirenes.trainer.ranks import Ranks
from megatron_seirenes.verifier.protocol import Judge


class SharedJudge:
    """A `Judge` that every rank of the replica calls alike."""

    def __init__(self, own: Judge, ranks: Ranks):
        self._own = own
        self._ranks = ranks
        self._submitted = 0
        self._handed_out: list[tuple[str, Verdict]] = []

    def submit(self, key: str, gold: str, response: str) -> None:
        places = self._ranks.places
        if self._submitted % places.replica_size == self._ranks.rank % places.replica_size:
            self._own.submit(key, gold, response)
        self._submitted += 1

    def ready(self) -> Sequence[tuple[str, Verdict]]:
        """The verdicts of this rank's share that are there; the others' come with `drain`."""
        found = self._own.ready()
        self._handed_out += found
        return found

    def drain(self) -> Sequence[tuple[str, Verdict]]:
        """Every verdict since the last drain that `ready` has not handed out here, of all ranks of the replica."""
        rest = self._own.drain()
        shares = self._ranks.gather_in_replica([*self._handed_out, *rest])
        place = self._ranks.rank % self._ranks.places.replica_size
        self._handed_out, self._submitted = [], 0
        return [verdict for other, share in enumerate(shares) for verdict in (rest if other == place else share)]

    def close(self) -> None:
        self._own.close()


def shared_judge(own: Judge, ranks: Ranks) -> Judge:
    """`own`, or its share of a judge when the replica has several ranks."""
    return own if ranks.places.replica_size == 1 else SharedJudge(own, ranks)
