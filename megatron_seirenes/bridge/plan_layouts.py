"""Who holds which region of every published tensor: Megatron's ranks before a sync, the engine's ranks after it.

Both sides are said in one language, rectangles of Hugging Face tensors with the ranks that hold them. The training side
follows from the weight map (`regions`); the engine side cuts the same tensors as vLLM 0.32 does. Ranks of both sides
are those of the colocated world: Megatron numbers them tensor, context, data, pipeline (outermost); an engine replica
is a block of `tensor * data` consecutive ranks.

Tensors of one kind whose layers lie on one stage, and whose experts lie on one rank of either side, have the same
holders: they form a class and are planned once. The 18,867 tensors of Qwen3-30B-A3B are a few hundred classes at most.

Refused (UsageError): sizes that do not divide the world, the layers, the heads or a dimension they cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.layout import Copy, Parameter, Shard, regions
from megatron_seirenes.bridge.weight_map import HEAD, HfTensor, WeightMap, build_weight_map
from megatron_seirenes.config.schema import ParallelSection
from megatron_seirenes.errors import UsageError

Ranks = npt.NDArray[np.int64]

VOCABULARY_MULTIPLE = 64
"""vLLM pads the rows of embedding and head to a multiple of this before cutting them."""

_LAYER = re.compile(r"decoder\.layers\.(\d+)\.")
_EXPERT = re.compile(r"\.local_experts\.(\d+)\.")


class Rect(NamedTuple):
    """Rows [row, row_end) and columns [column, column_end) of a tensor; a vector has one column."""

    row: int
    row_end: int
    column: int
    column_end: int

    @property
    def area(self) -> int:
        return max(0, self.row_end - self.row) * max(0, self.column_end - self.column)

    def meet(self, other: Rect) -> Rect:
        """The common part; its area is 0 when there is none."""
        return Rect(
            max(self.row, other.row),
            min(self.row_end, other.row_end),
            max(self.column, other.column),
            min(self.column_end, other.column_end),
        )

    def around(self, other: Rect) -> Rect:
        """The smallest region that holds both."""
        return Rect(
            min(self.row, other.row),
            max(self.row_end, other.row_end),
            min(self.column, other.column),
            max(self.column_end, other.column_end),
        )

    def slices(self, dimensions: int) -> tuple[slice, ...]:
        """The slices that cut it out of a tensor of one or two dimensions."""
        return (slice(self.row, self.row_end), slice(self.column, self.column_end))[:dimensions]


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """A region and the ranks that hold, or need, exactly it; `ranks` ascend."""

    rect: Rect
    ranks: Ranks


@dataclass(frozen=True, slots=True, eq=False)
class TensorClass:
    """Published tensors of one shape, held and needed by the same ranks. The strips of `held` are disjoint."""

    names: tuple[str, ...]
    rect: Rect
    held: tuple[Strip, ...]
    needed: tuple[Strip, ...]


@dataclass(frozen=True, slots=True)
class TrainingLayout:
    """How Megatron-Core lays a model over `world` ranks. Sizes as in `parallel` of a configuration."""

    world: int
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1
    context: int = 1
    expert: int = 1
    expert_tensor: int = 1

    def __post_init__(self) -> None:
        for what, size in (
            ("tensor x context x pipeline", self.tensor * self.context * self.pipeline),
            ("expert_tensor x expert x pipeline", self.expert_tensor * self.expert * self.pipeline),
        ):
            if self.world % size:
                raise UsageError(f"training layout: {what} is {size}, which does not divide {self.world} ranks")

    @classmethod
    def of(cls, parallel: ParallelSection, world: int) -> TrainingLayout:
        return cls(
            world=world,
            tensor=parallel.tensor,
            pipeline=parallel.pipeline,
            virtual_pipeline=parallel.virtual_pipeline or 1,
            context=parallel.context,
            expert=parallel.expert,
            expert_tensor=parallel.expert_tensor or parallel.tensor,
        )

    def stage(self, layer: int, layers: int) -> int:
        """The pipeline stage of a layer: chunks of consecutive layers are dealt to the stages in turn."""
        chunks = self.pipeline * self.virtual_pipeline
        if layers % chunks:
            raise UsageError(f"training layout: {layers} layers cannot be cut into {chunks} equal pipeline chunks")
        return layer // (layers // chunks) % self.pipeline

    def expert_owner(self, expert: int, experts: int) -> int:
        if experts % self.expert:
            raise UsageError(f"training layout: {experts} experts cannot be cut into {self.expert} equal shards")
        return expert // (experts // self.expert)

    def dense_ranks(self, stage: int, tensor_rank: int | None) -> Ranks:
        """The ranks of a stage, of one tensor-parallel rank or (None) of all of them."""
        ranks = self._stage_ranks(stage)
        return ranks if tensor_rank is None else ranks[ranks % self.tensor == tensor_rank]

    def expert_ranks(self, stage: int, expert_tensor_rank: int, expert_rank: int) -> Ranks:
        ranks = self._stage_ranks(stage)
        place = ranks % (self.expert_tensor * self.expert)
        return ranks[place == expert_rank * self.expert_tensor + expert_tensor_rank]

    def _stage_ranks(self, stage: int) -> Ranks:
        size = self.world // self.pipeline
        return np.arange(stage * size, (stage + 1) * size)


@dataclass(frozen=True, slots=True)
class EngineLayout:
    """How vLLM lays its replicas over `world` ranks.

    With `expert_parallel` the experts lie whole on the `tensor * data` ranks of a replica, in consecutive runs;
    otherwise every expert is cut over all of them. The rest is cut over `tensor` ranks and repeated `data` times.
    """

    world: int
    tensor: int = 1
    data: int = 1
    expert_parallel: bool = False

    def __post_init__(self) -> None:
        if self.world % self.replica:
            raise UsageError(f"engine layout: replicas of {self.replica} ranks do not divide {self.world} ranks")

    @property
    def replica(self) -> int:
        return self.tensor * self.data

    def expert_owner(self, expert: int, experts: int) -> int | None:
        """The place in its replica that holds an expert whole; None when experts are cut."""
        if not self.expert_parallel:
            return None
        share, rest = divmod(experts, self.replica)
        large = rest * (share + 1)
        return expert // (share + 1) if expert < large else rest + (expert - large) // share

    def ranks_at(self, place: int, places: int) -> Ranks:
        """The ranks whose number within a block of `places` is `place`."""
        return np.arange(place, self.world, places)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a class shares: pipeline stage, expert-parallel owner in training, owner in an engine replica."""

    template: str
    stage: int
    expert_rank: int | None = None
    engine_owner: int | None = None


def tensor_classes(
    architecture: Architecture, training: TrainingLayout, engine: EngineLayout
) -> tuple[TensorClass, ...]:
    """Every published tensor once, in classes. Raises UsageError for layouts that do not fit the architecture."""
    if training.world != engine.world:
        raise UsageError(f"training runs on {training.world} ranks and the engine on {engine.world}; they share ranks")
    weight_map = build_weight_map(architecture, _padded(architecture.vocabulary, training.tensor))
    members: dict[_Place, list[Parameter]] = {}
    for parameter in weight_map.parameters.values():
        if not parameter.replica:
            members.setdefault(_place(parameter, architecture, training, engine), []).append(parameter)
    return tuple(
        one for place, group in members.items() for one in _classes_of(weight_map, place, group, training, engine)
    )


def _place(parameter: Parameter, architecture: Architecture, training: TrainingLayout, engine: EngineLayout) -> _Place:
    layer = _LAYER.match(parameter.name)
    if layer is None:
        last = parameter.name != "embedding.word_embeddings.weight"
        return _Place(parameter.name, training.pipeline - 1 if last else 0)
    stage = training.stage(int(layer.group(1)), architecture.layers)
    template = parameter.name[layer.end() :]
    expert = _EXPERT.search(parameter.name)
    if expert is None or architecture.experts is None:
        return _Place(template, stage)
    number, count = int(expert.group(1)), architecture.experts.count
    return _Place(
        _EXPERT.sub("", template), stage, training.expert_owner(number, count), engine.expert_owner(number, count)
    )


def travel_order(architecture: Architecture, training: TrainingLayout, engine: EngineLayout) -> tuple[str, ...]:
    """Every published tensor, in an order in which neighbours lie on different ranks.

    The first layer of every stage comes first, and in a layer the first expert of every rank: so all stages and all
    expert ranks send at the same time.
    """
    weight_map = build_weight_map(architecture)
    keys: dict[str, tuple[int, int]] = {}
    layers_seen: dict[int, dict[int, int]] = {}
    for parameter in weight_map.parameters.values():
        place = _place(parameter, architecture, training, engine)
        layer, expert = _LAYER.match(parameter.name), _EXPERT.search(parameter.name)
        depth = -1
        if layer is not None:
            stage = layers_seen.setdefault(place.stage, {})
            depth = stage.setdefault(int(layer.group(1)), len(stage))
        turn = -1
        if expert is not None and architecture.experts is not None:
            turn = int(expert.group(1)) % (architecture.experts.count // training.expert)
        for name in _tensor_names(parameter):
            keys.setdefault(name, (depth, turn))
    return tuple(sorted(keys, key=lambda name: keys[name]))


def _classes_of(
    weight_map: WeightMap, place: _Place, group: Sequence[Parameter], training: TrainingLayout, engine: EngineLayout
) -> Iterator[TensorClass]:
    """One class for each tensor that the parameters of `group` are made of."""
    first = group[0]
    held = _held(first, place, training)
    if first.name == "embedding.word_embeddings.weight" and weight_map.parameters[HEAD].replica:
        last = _Place(HEAD, training.pipeline - 1)
        for name, strips in _held(weight_map.parameters[HEAD], last, training).items():
            held[name] += strips
    names = [_tensor_names(parameter) for parameter in group]
    for number, name in enumerate(names[0]):
        tensor = weight_map.tensors[name]
        yield TensorClass(
            names=tuple(one[number] for one in names),
            rect=_whole(tensor),
            held=_merged(held[name]),
            needed=_merged(_needed(weight_map.architecture, first, tensor, place, engine)),
        )


def _tensor_names(parameter: Parameter) -> list[str]:
    return [*dict.fromkeys(block.tensor for part in parameter.parts for block in part if block.tensor is not None)]


def _whole(tensor: HfTensor) -> Rect:
    return Rect(0, tensor.shape[0], 0, tensor.shape[1] if len(tensor.shape) > 1 else 1)


# -- the training side


def _held(parameter: Parameter, place: _Place, training: TrainingLayout) -> dict[str, list[Strip]]:
    sizes = {"tensor": training.tensor, "expert_tensor": training.expert_tensor, None: 1}
    strips: dict[str, list[Strip]] = {}
    for rank in range(sizes[parameter.group]):
        shard = Shard(rank, training.tensor, rank, training.expert_tensor)
        if place.expert_rank is not None:
            ranks = training.expert_ranks(place.stage, rank, place.expert_rank)
        else:
            ranks = training.dense_ranks(place.stage, rank if parameter.group else None)
        for name, rect in _rects(regions(parameter, shard)):
            strips.setdefault(name, []).append(Strip(rect, ranks))
    return strips


def _rects(copies: Iterable[Copy]) -> Iterator[tuple[str, Rect]]:
    """The region of each tensor in one shard. A shard holds consecutive rows of a tensor, in one or several copies."""
    runs: dict[str, Rect] = {}
    for copy in copies:
        rows, *columns = copy.hf_index
        column, column_end = (columns[0].start, columns[0].stop) if columns else (0, 1)
        before = runs.get(copy.hf_name)
        if before is not None and before.row_end != rows.start:
            raise AssertionError(f"{copy.hf_name}: a shard holds rows that are not consecutive")
        runs[copy.hf_name] = Rect(before.row if before else rows.start, rows.stop, column, column_end)
    yield from runs.items()


# -- the engine's side


def _needed(
    architecture: Architecture, parameter: Parameter, tensor: HfTensor, place: _Place, engine: EngineLayout
) -> list[Strip]:
    whole = _whole(tensor)
    if place.engine_owner is not None:
        return [Strip(whole, engine.ranks_at(place.engine_owner, engine.replica))]
    if parameter.group is None:
        return [Strip(whole, np.arange(engine.world))]
    places = engine.replica if parameter.group == "expert_tensor" else engine.tensor
    return [
        Strip(_engine_rect(architecture, parameter, tensor, number, places), engine.ranks_at(number, places))
        for number in range(places)
    ]


def _engine_rect(architecture: Architecture, parameter: Parameter, tensor: HfTensor, place: int, places: int) -> Rect:
    """vLLM's shard: heads and intermediate sizes evenly, key-value heads repeated when there are too few, vocabulary
    rows padded first."""
    rows = tensor.shape[0]
    columns = tensor.shape[1] if len(tensor.shape) > 1 else 1
    if parameter.dim == 1:
        return Rect(0, rows, *_even(columns, place, places, tensor.name))
    per_group = len(parameter.parts[0]) > 2
    if per_group and rows == architecture.kv_heads * architecture.head_dim and places > architecture.kv_heads:
        repeats, rest = divmod(places, architecture.kv_heads)
        if rest:
            raise UsageError(
                f"engine layout: tensor {places} is no multiple of {architecture.kv_heads} key-value heads"
            )
        return Rect(*_even(rows, place // repeats, architecture.kv_heads, tensor.name), 0, columns)
    if not parameter.name.startswith("decoder."):
        start, stop = _even(_padded(rows, VOCABULARY_MULTIPLE), place, places, tensor.name)
        return Rect(min(start, rows), min(stop, rows), 0, columns)
    unit = architecture.head_dim if per_group else 1
    start, stop = _even(rows // unit, place, places, tensor.name)
    return Rect(start * unit, stop * unit, 0, columns)


def _even(length: int, place: int, places: int, what: str) -> tuple[int, int]:
    if length % places:
        raise UsageError(f"engine layout: {what}: {length} cannot be cut into {places} equal shards")
    share = length // places
    return place * share, (place + 1) * share


def _padded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def _merged(strips: Iterable[Strip]) -> tuple[Strip, ...]:
    """Strips of the same region become one with the ranks of all; empty regions are left out."""
    ranks: dict[Rect, list[Ranks]] = {}
    for strip in strips:
        if strip.rect.area:
            ranks.setdefault(strip.rect, []).append(strip.ranks)
    return tuple(Strip(rect, np.unique(np.concatenate(parts))) for rect, parts in ranks.items())
