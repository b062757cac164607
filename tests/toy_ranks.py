"""Several ranks as threads of one process: every collective is a meeting, and a rank that dies breaks it for all."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from megatron_seirenes.trainer.ranks import Places

TIMEOUT = 60


class RankGone(Exception):
    """Another rank ended and will not come to this meeting."""


class _Meetings:
    """Where `size` threads exchange one value each, again and again; values are copied, as between processes."""

    def __init__(self, size: int):
        self._size = size
        self._changed = threading.Condition()
        self._visits = [0] * size
        self._brought: dict[int, dict[int, bytes]] = {}
        self._gone = False

    def gather(self, place: int, value: Any) -> list[Any]:
        with self._changed:
            number = self._visits[place]
            self._visits[place] += 1
            brought = self._brought.setdefault(number, {})
            brought[place] = pickle.dumps(value)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(brought) == self._size or self._gone, TIMEOUT)
            if len(brought) < self._size:
                raise RankGone
            self._brought.pop(number, None)
        return [pickle.loads(brought[other]) for other in range(self._size)]

    def leave(self) -> None:
        """This thread comes to no further meeting."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()


class ThreadRanks:
    """One thread's view. `moved` counts the bytes of parcels that left this rank for another."""

    def __init__(self, rank: int, places: Places, world: _Meetings, replica: _Meetings):
        self.rank, self.places = rank, places
        self._world, self._replica = world, replica
        self.moved = 0

    def gather(self, value: Any) -> list[Any]:
        return self._world.gather(self.rank, value)

    def gather_in_replica(self, value: Any) -> list[Any]:
        return self._replica.gather(self.rank % self.places.replica_size, value)

    def exchange(self, parcels: Sequence[bytes]) -> list[bytes]:
        self.moved += sum(len(parcel) for rank, parcel in enumerate(parcels) if rank != self.rank)
        return [sent[self.rank] for sent in self._world.gather(self.rank, list(parcels))]


def run_ranks(places: Places, program: Callable[[ThreadRanks], Any]) -> list[Any]:
    """What `program` returned on every rank; the exception it raised where it raised one."""
    world = _Meetings(places.size)
    replicas = [_Meetings(places.replica_size) for _ in range(places.replicas)]

    def run(rank: int) -> Any:
        try:
            return program(ThreadRanks(rank, copy.copy(places), world, replicas[places.replica_of(rank)]))
        except Exception as error:
            for meeting in (world, *replicas):
                meeting.leave()
            return error

    with ThreadPoolExecutor(places.size) as pool:
        return list(pool.map(run, range(places.size)))
