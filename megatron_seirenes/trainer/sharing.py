"""Who does what: pure decisions that every rank takes alike, and the moves that follow from them.

    problems -> replicas        contiguous runs of the batch, so that joined results stand in the batch's order
    rollouts -> data ranks      to be scored: among the data-parallel ranks that touch the replica that made them
    a flush  -> data ranks      to be trained on: among all of them

Costs are balanced, the dearest first to whoever has least; equal costs go by index. A payload moves only to ranks that
do not hold it, once.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.trainer.ranks import Places, Ranks

Cost = Callable[[int], float]


def share_of[Item](batch: Sequence[Item], replica: int, replicas: int) -> Sequence[Item]:
    """The part of the batch that a replica asks; the parts joined in order are the batch, sizes differ by at most 1."""
    return batch[len(batch) * replica // replicas : len(batch) * (replica + 1) // replicas]


def balance(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Every index in exactly one of `parts` lists, ascending within each; the costs of the lists are nearly even."""
    lists: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0.0, part) for part in range(parts)]
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        total, part = heapq.heappop(heap)
        lists[part].append(index)
        heapq.heappush(heap, (total + costs[index], part))
    return [sorted(members) for members in lists]


def sequence_cost(architecture: Architecture) -> Cost:
    """The cost of a sequence by its tokens, in tokens' worth of matrix products, attention included.

    A layer multiplies about 12 hidden^2 weights a token (24 hidden^2 operations), and causal attention over L tokens
    takes 2 L hidden operations a token: as much at L = 12 hidden.
    """
    return lambda tokens: tokens * (1.0 + tokens / (12.0 * architecture.hidden))


@dataclass(frozen=True, slots=True)
class Move[Key: Hashable]:
    """The payload `key`, which `holders` have, goes to those of `takers` that do not have it."""

    key: Key
    holders: tuple[int, ...]
    takers: tuple[int, ...]

    def source(self, taker: int) -> int:
        """Who gives it to `taker`: itself, or one of the holders, each its share."""
        return taker if taker in self.holders else self.holders[taker % len(self.holders)]


def deliver[Key: Hashable, Payload](
    ranks: Ranks, moves: Sequence[Move[Key]], held: Mapping[Key, Payload]
) -> dict[Key, Payload]:
    """What this rank takes, by key, in the order of `moves`. Collective: `moves` are the same on every rank.

    `held` has at least what the moves say this rank holds. Nothing is sent when every taker is a holder.
    """
    outgoing: dict[int, dict[Key, Payload]] = {}
    crossing = False
    for move in moves:
        for taker in move.takers:
            source = move.source(taker)
            crossing |= source != taker
            if source == ranks.rank != taker:
                outgoing.setdefault(taker, {})[move.key] = held[move.key]
    received: dict[Key, Payload] = {}
    if crossing:
        parcels = [_packed(outgoing.get(rank)) for rank in range(ranks.places.size)]
        for parcel in ranks.exchange(parcels):
            received |= pickle.loads(parcel) if parcel else {}
    mine = [move for move in moves if ranks.rank in move.takers]
    return {move.key: held[move.key] if ranks.rank in move.holders else received[move.key] for move in mine}


def _packed[Key: Hashable](payloads: Mapping[Key, object] | None) -> bytes:
    return pickle.dumps(payloads, protocol=pickle.HIGHEST_PROTOCOL) if payloads else b""


def scoring_parts(places: Places, costs_by_replica: Sequence[Sequence[float]]) -> list[list[int]]:
    """For each replica, the data-parallel rank that scores each of its rollouts."""
    chosen: list[list[int]] = []
    for replica, costs in enumerate(costs_by_replica):
        candidates = places.data_ranks_of(replica)
        scorer = [0] * len(costs)
        for candidate, indices in zip(candidates, balance(costs, len(candidates)), strict=True):
            for index in indices:
                scorer[index] = candidate
        chosen.append(scorer)
    return chosen
