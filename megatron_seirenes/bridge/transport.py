"""Carrying a plan out: live Megatron parameters to what this rank's engine needs, bucket by bucket.

Each bucket is one message to every rank that gets something of it and one from every rank that gives; at most
`IN_FLIGHT` buckets are under way, so their buffers hold at most that many times the plan's bucket size. No rank ever
holds the model whole, and bytes that are on their rank already are not sent.

`tensors()` yields every published tensor in its full shape, so that the engine's own loaders can cut it; only the
region that this rank's engine needs is filled. A tensor that lies whole in one live parameter is yielded as a view of
it; one of which nothing is needed takes no memory. Use tensors before the next update, and do not write to them.

Refused: a plan for another world, and a region that the plan takes from a rank that does not hold it (DataError).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy
from megatron_seirenes.bridge.live import bind, this_rank
from megatron_seirenes.bridge.plan import Move, Plan
from megatron_seirenes.bridge.plan_layouts import Rect
from megatron_seirenes.errors import DataError, UsageError

IN_FLIGHT = 2

Piece = tuple[torch.Tensor, Copy]


@dataclass(slots=True)
class Traffic:
    """What one sync did on this rank, in bytes; `largest_buffers` is the most that messages held at one time."""

    sent: int = 0
    received: int = 0
    buckets: int = 0
    largest_buffers: int = 0


@dataclass(slots=True)
class _Bucket:
    """One bucket under way. `moves` are its steps as this rank sees them; messages are by peer."""

    moves: list[tuple[str, bool, list[Move], list[Move]]]
    incoming: dict[int, torch.Tensor]
    outgoing: dict[int, torch.Tensor]
    works: list[dist.Work] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(buffer.nbytes for buffer in (*self.incoming.values(), *self.outgoing.values()))


class Transport:
    """One sync of `modules`, this rank's GPTModel chunks. Collective: every rank of the world makes and drains one.

    `blank` fills what a yielded tensor holds outside the needed region (default: left as it comes).
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        architecture: Architecture,
        plan: Plan,
        blank: float | None = None,
    ):
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        world = dist.get_world_size() if dist.is_initialized() else 1
        if plan.world != world:
            raise UsageError(f"the plan is for {plan.world} ranks, and {world} run")
        self.plan = plan
        self.blank = blank
        self.traffic = Traffic()
        weight_map, bound = bind(modules, architecture, this_rank())
        self._shapes = {name: tensor.shape for name, tensor in weight_map.tensors.items()}
        self._live: dict[str, list[Piece]] = {}
        for owner in bound:
            for copy in owner.copies:
                self._live.setdefault(copy.hf_name, []).append((owner.tensor, copy))
        any_parameter = bound[0].tensor
        self._dtype, self._device = any_parameter.dtype, any_parameter.device
        if self._dtype.itemsize != plan.itemsize:
            raise UsageError(f"the plan is for numbers of {plan.itemsize} bytes; the parameters are {self._dtype}")

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(published name, tensor) once for each tensor, in the order of the plan."""
        moves = list(self.plan.moves(self.rank))
        waiting: deque[_Bucket] = deque()
        unfinished: dict[str, torch.Tensor] = {}
        for start, stop in zip(self.plan.buckets, self.plan.buckets[1:], strict=False):
            waiting.append(self._post(moves[start:stop]))
            held = sum(bucket.bytes for bucket in waiting)
            self.traffic.largest_buffers = max(self.traffic.largest_buffers, held)
            if len(waiting) == IN_FLIGHT:
                yield from self._finish(waiting.popleft(), unfinished)
        while waiting:
            yield from self._finish(waiting.popleft(), unfinished)

    # -- messages

    def _post(self, moves: list[tuple[str, bool, list[Move], list[Move]]]) -> _Bucket:
        """Packs what this rank gives and starts the messages, to and from peers in ascending order."""
        sends = [(name, move) for name, _, sent, _ in moves for move in sent]
        receives = [move for _, _, _, received in moves for move in received if move.peer != self.rank]
        bucket = _Bucket(moves, incoming=self._buffers(receives), outgoing=self._buffers([move for _, move in sends]))
        filled = dict.fromkeys(bucket.outgoing, 0)
        for name, move in sends:
            first = filled[move.peer]
            filled[move.peer] = first + move.rect.area
            part = bucket.outgoing[move.peer][first : filled[move.peer]]
            self._fill(part.view(_size(move.rect, len(self._shapes[name]))), name, move.rect)
        operations = [
            dist.P2POp(call, buffers[peer], peer)
            for call, buffers in ((dist.irecv, bucket.incoming), (dist.isend, bucket.outgoing))
            for peer in sorted(buffers)
        ]
        if operations:
            bucket.works = dist.batch_isend_irecv(operations)
        self.traffic.buckets += 1
        self.traffic.sent += sum(buffer.nbytes for buffer in bucket.outgoing.values())
        self.traffic.received += sum(buffer.nbytes for buffer in bucket.incoming.values())
        return bucket

    def _finish(self, bucket: _Bucket, unfinished: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """Waits for a bucket and yields the tensors that it completes."""
        for work in bucket.works:
            work.wait()
        bucket.works.clear()  # each holds its buffer
        bucket.outgoing.clear()
        read = dict.fromkeys(bucket.incoming, 0)
        for name, complete, _, receives in bucket.moves:
            whole = unfinished.pop(name, None)
            if whole is None and complete and (view := self._view(name, receives)) is not None:
                yield name, view
                continue
            for move in receives:
                whole = self._fresh(name) if whole is None else whole
                target = whole[move.rect.slices(whole.dim())]
                if move.peer == self.rank:
                    self._fill(target, name, move.rect)
                    continue
                first = read[move.peer]
                read[move.peer] = first + move.rect.area
                target.copy_(bucket.incoming[move.peer][first : read[move.peer]].view(target.shape))
            if not complete:
                if whole is not None:
                    unfinished[name] = whole
                continue
            yield name, self._nothing(name) if whole is None else whole

    # -- live parameters

    def _fill(self, target: torch.Tensor, name: str, rect: Rect) -> None:
        """Copies a region of a published tensor out of the live parameters, straight into its place."""
        pieces = self._live.get(name, [])
        found = [(tensor, copy, common) for tensor, copy in pieces if (common := _rect(copy).meet(rect)).area]
        if len(found) > 1 and _rect(found[0][1]).meet(rect) == rect:
            found = found[:1]
        if sum(common.area for _, _, common in found) != rect.area:
            raise DataError(f"{name}: the plan takes {rect} from rank {self.rank}, which does not hold it")
        for tensor, copy, common in found:
            inside = Rect(
                common.row - rect.row,
                common.row_end - rect.row,
                common.column - rect.column,
                common.column_end - rect.column,
            )
            target[inside.slices(target.dim())].copy_(_cut(tensor, copy, common, target.dim()))

    def _view(self, name: str, receives: list[Move]) -> torch.Tensor | None:
        """The tensor itself, where one live parameter holds all of it and the engine needs all of it here."""
        pieces = self._live.get(name, [])
        if len(receives) != 1 or receives[0].peer != self.rank or not pieces:
            return None
        tensor, copy = pieces[0]
        whole = _rect(copy) == receives[0].rect and receives[0].rect.area == math.prod(self._shapes[name])
        return tensor[copy.local_index] if whole else None

    def _buffers(self, moves: Iterable[Move]) -> dict[int, torch.Tensor]:
        """One buffer a peer, with room for all that goes to it or comes from it."""
        sizes: dict[int, int] = {}
        for move in moves:
            sizes[move.peer] = sizes.get(move.peer, 0) + move.rect.area
        return {peer: self._empty((size,)) for peer, size in sizes.items()}

    def _fresh(self, name: str) -> torch.Tensor:
        whole = self._empty(self._shapes[name])
        return whole if self.blank is None else whole.fill_(self.blank)

    def _nothing(self, name: str) -> torch.Tensor:
        """A tensor of the right shape without memory of its own: the engine skips it."""
        blank = float("nan") if self.blank is None else self.blank
        return torch.full((), blank, dtype=self._dtype, device=self._device).expand(self._shapes[name])

    def _empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)


def _rect(copy: Copy) -> Rect:
    rows, *columns = copy.hf_index
    column, column_end = (columns[0].start, columns[0].stop) if columns else (0, 1)
    return Rect(rows.start, rows.stop, column, column_end)


def _size(rect: Rect, dimensions: int) -> tuple[int, ...]:
    return (rect.row_end - rect.row, rect.column_end - rect.column)[:dimensions]


def _cut(tensor: torch.Tensor, copy: Copy, common: Rect, dimensions: int) -> torch.Tensor:
    """The part `common` of the region that `copy` holds, as a view of the live parameter."""
    held = _rect(copy)
    rows, *columns = copy.local_index
    row = rows.start + common.row - held.row
    column = (columns[0].start if columns else 0) + common.column - held.column
    place = Rect(row, row + common.row_end - common.row, column, column + common.column_end - common.column)
    return tensor[place.slices(dimensions)]
