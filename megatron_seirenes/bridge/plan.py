"""Which bytes each rank sends and receives in a sync: a pure function of a shape and two layouts.

Every rank works the plan out for itself and finds the same one, so nothing has to be agreed on. A region that a rank
needs and holds already is copied there; any other comes from exactly one of the ranks that hold it: one of the same
node where there is one, otherwise the holders in turn. So a plan sends exactly the bytes of `lower_bound`, and what is
left to choose, who sends, is spread evenly.

Tensors go in a fixed order, in *buckets*: runs of them of which no rank sends and receives more than `bucket_bytes`,
both together. Two neighbouring buckets and the tensors that are put together of the first fit into twice that, as long
as no tensor with the one before it takes more than 1.5 times as much: where they are large, buckets are smaller. A
tensor too large for one bucket is cut into slabs of rows. The order lets all stages and expert ranks send at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.plan_layouts import (
    EngineLayout,
    Ranks,
    Rect,
    TensorClass,
    TrainingLayout,
    tensor_classes,
    travel_order,
)
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import UsageError

Bytes = npt.NDArray[np.int64]

BUCKET_BYTES = 512 * 2**20
RANKS_PER_NODE = 8
SMALLEST_BUCKET = 4
"""A bucket may always hold the `bucket_bytes` divided by this, however large its tensors are."""
_ITEMSIZES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What no plan can go below. `total`: bytes of each engine shard that are not on its rank, over all ranks;
    `largest_ingress`: the most of them that one rank lacks."""

    total: int
    largest_ingress: int


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The region `rect` goes from `senders[i]` to `receivers[i]`, for every i; where both are equal it is copied."""

    rect: Rect
    senders: Ranks
    receivers: Ranks


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What happens to one slab of one tensor; slabs of tensors of a class share it.

    `sent` and `received` are bytes a rank, local copies left out; `far` is what of them is received from other nodes.
    `complete` marks the last slab of its tensor.
    """

    flows: tuple[Flow, ...]
    sent: Bytes
    received: Bytes
    far: Bytes
    complete: bool


@dataclass(frozen=True, slots=True)
class Move:
    """One region as one rank sees it: sent to `peer`, received from it, or (its own number) copied."""

    peer: int
    rect: Rect


@dataclass(frozen=True, eq=False)
class Plan:
    """`steps` are (tensor name, step) in order; bucket b is `steps[buckets[b] : buckets[b + 1]]`."""

    world: int
    itemsize: int
    bound: LowerBound
    steps: tuple[tuple[str, Step], ...]
    buckets: tuple[int, ...]

    @cached_property
    def sent(self) -> Bytes:
        """Bytes that each rank sends."""
        return _total(step.sent for _, step in self.steps)

    @cached_property
    def received(self) -> Bytes:
        """Bytes that each rank receives."""
        return _total(step.received for _, step in self.steps)

    @cached_property
    def far(self) -> Bytes:
        """Bytes that each rank receives from other nodes."""
        return _total(step.far for _, step in self.steps)

    @property
    def total(self) -> int:
        """Bytes that travel between ranks."""
        return int(self.received.sum())

    @cached_property
    def critical(self) -> int:
        """Bytes of the busiest rank of each bucket, in or out, summed: the time of buckets that do not overlap."""
        steps = [step for _, step in self.steps]
        parts = [steps[start:stop] for start, stop in zip(self.buckets, self.buckets[1:], strict=False)]
        loads = [(_total(s.sent for s in part), _total(s.received for s in part)) for part in parts]
        return sum(int(max(sent.max(), received.max())) for sent, received in loads)

    def moves(self, rank: int) -> Iterator[tuple[str, bool, list[Move], list[Move]]]:
        """Each step as `rank` sees it: tensor, whether it is complete after it, what to send, what to receive.

        A local copy is among the received moves, with `rank` itself as the peer.
        """
        seen: dict[int, tuple[list[Move], list[Move]]] = {}
        for name, step in self.steps:
            if id(step) not in seen:
                seen[id(step)] = _moves_of(step, rank)
            yield name, step.complete, *seen[id(step)]

    def needed(self, rank: int) -> dict[str, Rect]:
        """The region of each tensor that the engine needs on `rank`; tensors of which it needs nothing are left out."""
        whole: dict[str, Rect] = {}
        for name, _, _, receives in self.moves(rank):
            for move in receives:
                whole[name] = whole[name].around(move.rect) if name in whole else move.rect
        return whole


def plan_sync(
    architecture: Architecture,
    training: TrainingLayout,
    engine: EngineLayout,
    *,
    itemsize: int = 2,
    bucket_bytes: int = BUCKET_BYTES,
    ranks_per_node: int = RANKS_PER_NODE,
) -> Plan:
    """The plan of one sync of weights of `itemsize` bytes a number. Raises UsageError for layouts that do not fit."""
    if bucket_bytes < 1 or ranks_per_node < 1:
        raise UsageError("a plan needs at least one byte a bucket and one rank a node")
    classes = tensor_classes(architecture, training, engine)
    order = travel_order(architecture, training, engine)
    assembled = _assembled(order, {name: one.rect.area * itemsize for one in classes for name in one.names})
    chooser = _SenderChooser(training.world, itemsize, ranks_per_node)
    steps_of: dict[str, list[Step]] = {}
    for one in classes:
        room = _room(bucket_bytes, max(assembled[name] for name in one.names))
        steps_of.update(dict.fromkeys(one.names, chooser.steps(one, room)))
    steps = tuple((name, step) for name in order for step in steps_of[name])
    return Plan(
        world=training.world,
        itemsize=itemsize,
        bound=lower_bound(classes, training.world, itemsize),
        steps=steps,
        buckets=_buckets(steps, assembled, training.world, bucket_bytes),
    )


def plan_of(config: Config, architecture: Architecture, world: int) -> Plan:
    """The plan of every sync of a run on `world` ranks. Raises UsageError for a layout that does not fit."""
    return plan_sync(
        architecture,
        TrainingLayout.of(config.parallel, world),
        EngineLayout(world, config.rollout.tensor, expert_parallel=config.rollout.expert_parallel),
        itemsize=_ITEMSIZES[config.model.dtype],
        bucket_bytes=config.rollout.sync_bucket_bytes,
    )


def lower_bound(classes: Sequence[TensorClass], world: int, itemsize: int) -> LowerBound:
    """Counted from what is held and needed alone, without choosing any sender."""
    missing = np.zeros(world, dtype=np.int64)
    for one in classes:
        for need in one.needed:
            missing[need.ranks] += need.rect.area * len(one.names)
            for strip in one.held:
                there = np.intersect1d(need.ranks, strip.ranks, assume_unique=True)
                missing[there] -= need.rect.meet(strip.rect).area * len(one.names)
    missing *= itemsize
    return LowerBound(total=int(missing.sum()), largest_ingress=int(missing.max()))


class _SenderChooser:
    """Deals out senders; `_turn` goes on over classes so that no holder is always the first."""

    def __init__(self, world: int, itemsize: int, ranks_per_node: int):
        self.world = world
        self.itemsize = itemsize
        self.ranks_per_node = ranks_per_node
        self._turn = 0

    def steps(self, one: TensorClass, bucket_bytes: int) -> list[Step]:
        """The steps of one tensor of a class, in as many slabs as the bucket asks for."""
        slabs, rows = 1, one.rect.row_end
        while True:
            steps = [self._step(one, number, slabs) for number in range(slabs)]
            largest = max(int((step.sent + step.received).max()) for step in steps)
            if largest <= bucket_bytes or slabs >= rows:
                return steps
            slabs = min(rows, max(2 * slabs, -(-largest * slabs // bucket_bytes)))

    def _step(self, one: TensorClass, slab: int, slabs: int) -> Step:
        rows = one.rect.row_end
        part = one.rect._replace(row=slab * rows // slabs, row_end=(slab + 1) * rows // slabs)
        flows = tuple(
            Flow(rect, self._senders(strip.ranks, need.ranks), need.ranks)
            for need in one.needed
            for strip in one.held
            if (rect := need.rect.meet(strip.rect).meet(part)).area
        )
        sent, received, far = (np.zeros(self.world, dtype=np.int64) for _ in range(3))
        for flow in flows:
            away = flow.senders != flow.receivers
            size = flow.rect.area * self.itemsize
            np.add.at(sent, flow.senders[away], size)
            np.add.at(received, flow.receivers[away], size)
            far[flow.receivers[flow.senders // self.ranks_per_node != flow.receivers // self.ranks_per_node]] += size
        return Step(flows, sent, received, far, complete=slab == slabs - 1)

    def _senders(self, holders: Ranks, receivers: Ranks) -> Ranks:
        """For each receiver: itself, else a holder of its node, else any holder; in turn."""
        node = receivers // self.ranks_per_node * self.ranks_per_node
        first, last = (np.searchsorted(holders, edge) for edge in (node, node + self.ranks_per_node))
        near = last > first
        own = np.isin(receivers, holders)
        turn = self._turn + np.where(near, np.cumsum(near & ~own), np.cumsum(~near))
        self._turn += int((~own).sum())
        chosen = np.where(
            near,
            holders[np.minimum(first + turn % np.maximum(last - first, 1), len(holders) - 1)],
            holders[turn % len(holders)],
        )
        return np.where(own, receivers, chosen)


def _moves_of(step: Step, rank: int) -> tuple[list[Move], list[Move]]:
    sends, receives = [], []
    for flow in step.flows:
        out = (flow.senders == rank) & (flow.receivers != rank)
        sends += [Move(int(peer), flow.rect) for peer in flow.receivers[out]]
        receives += [Move(int(peer), flow.rect) for peer in flow.senders[flow.receivers == rank]]
    return sends, receives


def _assembled(order: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """For each tensor the bytes held while it is put together: its own, and the one before, still with the engine."""
    return {order[0]: sizes[order[0]]} | {name: sizes[before] + sizes[name] for before, name in pairwise(order)}


def _room(bucket_bytes: int, assembled: int) -> int:
    """What a bucket may hold of messages for a rank, so that two of them and `assembled` fit into two buckets."""
    return max(bucket_bytes - assembled // 2, bucket_bytes // SMALLEST_BUCKET, 1)


def _buckets(
    steps: Sequence[tuple[str, Step]], assembled: Mapping[str, int], world: int, bucket_bytes: int
) -> tuple[int, ...]:
    """Where buckets begin and end. A bucket leaves room for its own tensors and, with it under way, the last one's.

    Before a step too large for that comes an empty bucket: the last one's tensors are through when the step starts.
    """
    edges = [0]
    held = np.zeros(world, dtype=np.int64)
    before = largest = 0
    for index, (name, step) in enumerate(steps):
        held = held + step.sent + step.received
        largest = max(largest, assembled[name])
        if index > edges[-1] and int(held.max()) > _room(bucket_bytes, max(before, largest)):
            edges.append(index)
            held = step.sent + step.received
            before, largest = largest, assembled[name]
            if int(held.max()) > _room(bucket_bytes, before):
                edges.append(index)
                before = 0
    return (*edges, len(steps))


def _total(parts: Iterator[Bytes]) -> Bytes:
    return np.sum(np.stack(list(parts)), axis=0)
