"""The ranks of a run: where each stands, and the few ways in which they talk about decisions and payloads.

The control plane is replicated: ranks gather small values and then decide the same by pure functions, so there is no
rank that decides for the others. Only payloads move from rank to rank (`exchange`).

Every method of `Ranks` is collective: all ranks (or, where it says so, all ranks of the replica) make the same calls in
the same order. Values that travel are pickled; they come from ranks of the same run.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist

from megatron_seirenes.errors import FirstRankFailed, SeirenesError

T = TypeVar("T")


@dataclass(frozen=True)
class Places:
    """Where every rank stands. Rollout replicas are blocks of `replica_size` ranks; `data_ranks[r]` is the
    data-parallel rank of rank r: ranks with the same one train on the same sequences."""

    replica_size: int
    data_ranks: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.data_ranks)

    @property
    def replicas(self) -> int:
        return self.size // self.replica_size

    @property
    def data_size(self) -> int:
        return max(self.data_ranks) + 1

    def replica_of(self, rank: int) -> int:
        return rank // self.replica_size

    def members(self, replica: int) -> tuple[int, ...]:
        """The ranks of a rollout replica; the first is its leader."""
        return tuple(range(replica * self.replica_size, (replica + 1) * self.replica_size))

    def learners(self, data_rank: int) -> tuple[int, ...]:
        """The ranks that train on the sequences of a data-parallel rank."""
        return self._learners[data_rank]

    def data_ranks_of(self, replica: int) -> tuple[int, ...]:
        """The data-parallel ranks that have a rank in this replica."""
        return tuple(sorted({self.data_ranks[rank] for rank in self.members(replica)}))

    @cached_property
    def _learners(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for rank, data_rank in enumerate(self.data_ranks):
            found.setdefault(data_rank, []).append(rank)
        return {data_rank: tuple(ranks) for data_rank, ranks in found.items()}


class Ranks(Protocol):
    """This rank among the ranks of the run."""

    rank: int
    places: Places

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in order of ranks."""

    def gather_in_replica(self, value: T) -> list[T]:
        """The value of every rank of this rank's replica, in order of ranks. Collective in the replica."""

    def exchange(self, parcels: Sequence[bytes]) -> list[bytes]:
        """Sends `parcels[r]` to rank r; returns what each rank sent here."""


class OneRank:
    """A run of one process: talks to nobody and needs no torch.distributed."""

    rank = 0
    places = Places(1, (0,))

    def gather(self, value: T) -> list[T]:
        return [value]

    def gather_in_replica(self, value: T) -> list[T]:
        return [value]

    def exchange(self, parcels: Sequence[bytes]) -> list[bytes]:
        return list(parcels)


ALONE = OneRank()


class ProcessRanks:
    """The processes of an initialised torch.distributed world, over groups of their own on the host (gloo).

    Making one is collective. `timeout` bounds every call.
    """

    def __init__(self, replica_size: int, data_rank: int, timeout: timedelta):
        self.rank = dist.get_rank()
        self._world = dist.new_group(backend="gloo", timeout=timeout)
        data_ranks = [0] * dist.get_world_size()
        dist.all_gather_object(data_ranks, data_rank, group=self._world)
        self.places = Places(replica_size, tuple(data_ranks))
        groups = [
            dist.new_group(list(self.places.members(replica)), backend="gloo", timeout=timeout)
            for replica in range(self.places.replicas)
        ]
        self._replica = groups[self.places.replica_of(self.rank)]

    def gather(self, value: T) -> list[T]:
        values: list[T] = [value] * self.places.size
        dist.all_gather_object(values, value, group=self._world)
        return values

    def gather_in_replica(self, value: T) -> list[T]:
        values: list[T] = [value] * self.places.replica_size
        if len(values) > 1:
            dist.all_gather_object(values, value, group=self._replica)
        return values

    def exchange(self, parcels: Sequence[bytes]) -> list[bytes]:
        sent = torch.tensor([len(parcel) for parcel in parcels])
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self._world)
        sizes = received.tolist()
        incoming = torch.empty(sum(sizes), dtype=torch.uint8)
        dist.all_to_all_single(incoming, _as_tensor(parcels), sizes, sent.tolist(), group=self._world)
        return [part.numpy().tobytes() for part in incoming.split(sizes)]


def _as_tensor(parcels: Sequence[bytes]) -> torch.Tensor:
    joined = bytearray().join(parcels)
    return torch.frombuffer(joined, dtype=torch.uint8) if joined else torch.empty(0, dtype=torch.uint8)


def several(ranks: Ranks) -> bool:
    return ranks.places.size > 1


def any_rank(ranks: Ranks, flag: bool) -> bool:
    """Whether any rank says so; the same answer everywhere."""
    return any(ranks.gather(flag))


def any_of_replica(ranks: Ranks, flag: bool) -> bool:
    """Whether any rank of the replica says so; the same answer in all of it."""
    return any(ranks.gather_in_replica(flag))


def of_leaders[T](ranks: Ranks, value: T) -> list[T]:
    """The value of every replica's leader, in order of replicas; what the other ranks give is not sent."""
    places = ranks.places
    leads = ranks.rank % places.replica_size == 0
    gathered: list[T | None] = ranks.gather(value if leads else None)
    return [gathered[places.members(replica)[0]] for replica in range(places.replicas)]  # type: ignore[misc]


def from_first[T](ranks: Ranks, value: T) -> T:
    """Rank 0's value, on every rank."""
    return ranks.gather(value if ranks.rank == 0 else None)[0]  # type: ignore[return-value]


def first_alone[T](ranks: Ranks, action: Callable[[], T]) -> T:
    """What rank 0's `action` returned, on every rank, after it has run. Raises what it raised there (a SeirenesError),
    and FirstRankFailed on the others."""
    result: T | None = None
    failure: SeirenesError | None = None
    if ranks.rank == 0:
        try:
            result = action()
        except SeirenesError as error:
            failure = error
    exit_code, shared = from_first(ranks, (failure.exit_code if failure else None, result))
    if failure is not None:
        raise failure
    if exit_code is not None:
        raise FirstRankFailed(exit_code)
    return shared  # type: ignore[return-value]


def leaders_to_first[T](ranks: Ranks, value: T) -> list[T] | None:
    """The value of every replica's leader, on rank 0 alone; None on the others."""
    if not several(ranks):
        return [value]
    parcels = [b""] * ranks.places.size
    if ranks.rank % ranks.places.replica_size == 0:
        parcels[0] = pickle.dumps(value)
    received = ranks.exchange(parcels)
    return [pickle.loads(parcel) for parcel in received if parcel] if ranks.rank == 0 else None
