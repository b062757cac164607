"""Where the rows of one Megatron parameter come from, and which of them one rank holds: pure arithmetic on shapes.

A parameter, seen whole (tensor parallel size 1), is a list of *parts* stacked along its rows; a part is a list of
*blocks*, runs of rows of Hugging Face tensors. A rank's shard takes its share of every part on its own, because
Megatron cuts a fused gate/up projection as `[gate_r; up_r]`, never across the two.

Invariants: the shards of all ranks of a parameter's group tile every Hugging Face row it is made of exactly once, and
their copies tile every local row that is not padding exactly once. A size that does not divide is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from megatron_seirenes.errors import UsageError

Group = Literal["tensor", "expert_tensor"]
Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """`rows` rows of the Hugging Face tensor `tensor` from row `start`; without a tensor, rows of padding (zeros)."""

    tensor: str | None
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """One Megatron parameter as tensor parallel size 1 would hold it.

    `name` carries the global layer and expert number. `group` shards it along dimension `dim` (None: every rank of the
    group holds it whole). A `replica` is a second live copy of rows that another parameter owns (the head of a tied
    model on the last pipeline stage): it is loaded, never exported.
    """

    name: str
    shape: tuple[int, ...]
    parts: tuple[tuple[Block, ...], ...]
    group: Group | None = None
    dim: int | None = None
    replica: bool = False

    @property
    def padded(self) -> bool:
        return any(block.tensor is None for part in self.parts for block in part)


@dataclass(frozen=True, slots=True)
class Shard:
    """The place of one rank in the groups that cut parameters. Layers of a pipeline stage come from its modules."""

    tensor_rank: int = 0
    tensor_size: int = 1
    expert_tensor_rank: int = 0
    expert_tensor_size: int = 1
    expert_rank: int = 0
    expert_size: int = 1

    def place(self, group: Group | None) -> tuple[int, int]:
        """Rank and size in `group`; (0, 1) for what no group cuts."""
        if group == "tensor":
            return self.tensor_rank, self.tensor_size
        if group == "expert_tensor":
            return self.expert_tensor_rank, self.expert_tensor_size
        return 0, 1

    def experts(self, count: int) -> range:
        """The global numbers of the experts, of `count`, that this rank holds."""
        return range(*_share(count, self.expert_rank, self.expert_size, "experts"))


@dataclass(frozen=True, slots=True)
class Copy:
    """`local[local_index]` and `hf[hf_index]` are the same numbers."""

    hf_name: str
    hf_index: Index
    local_index: Index


def regions(parameter: Parameter, shard: Shard) -> tuple[Copy, ...]:
    """The copies that fill the shard of `parameter` that `shard` holds, in the order of its rows.

    Raises UsageError when the size of the group does not divide the dimension it cuts.
    """
    rank, size = shard.place(parameter.group)
    copies: list[Copy] = []
    local_row = 0
    for part in parameter.parts:
        rows = sum(block.rows for block in part)
        start, stop = _share(rows, rank, size, parameter.name) if parameter.dim == 0 else (0, rows)
        copies += _row_copies(parameter, shard, part, (start, stop), local_row)
        local_row += stop - start
    return tuple(copies)


def local_shape(parameter: Parameter, shard: Shard) -> tuple[int, ...]:
    """The shape of the shard of `parameter` that `shard` holds. Raises UsageError like `regions`."""
    rank, size = shard.place(parameter.group)
    shape = list(parameter.shape)
    if parameter.dim is not None:
        start, stop = _share(shape[parameter.dim], rank, size, parameter.name)
        shape[parameter.dim] = stop - start
    return tuple(shape)


def _row_copies(
    parameter: Parameter, shard: Shard, part: tuple[Block, ...], wanted: tuple[int, int], local_row: int
) -> list[Copy]:
    """The copies of the rows [wanted) of one part; its first wanted row lies at `local_row` of the shard."""
    hf_columns, local_columns = _columns(parameter, shard)
    copies = []
    position = 0
    for block in part:
        first, last = max(position, wanted[0]), min(position + block.rows, wanted[1])
        if first < last and block.tensor is not None:
            source = slice(block.start + first - position, block.start + last - position)
            target = slice(local_row + first - wanted[0], local_row + last - wanted[0])
            copies.append(Copy(block.tensor, (source, *hf_columns), (target, *local_columns)))
        position += block.rows
    return copies


def _columns(parameter: Parameter, shard: Shard) -> tuple[Index, Index]:
    """The index behind the rows, in the Hugging Face tensor and in the shard: empty for a vector."""
    if len(parameter.shape) == 1:
        return (), ()
    columns = parameter.shape[1]
    start, stop = 0, columns
    if parameter.dim == 1:
        start, stop = _share(columns, *shard.place(parameter.group), parameter.name)
    return (slice(start, stop),), (slice(0, stop - start),)


def _share(length: int, rank: int, size: int, what: str) -> tuple[int, int]:
    if length % size:
        raise UsageError(f"{what}: {length} cannot be cut into {size} equal shards; choose a parallel size dividing it")
    share = length // size
    return rank * share, (rank + 1) * share
