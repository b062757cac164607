"""The plan of a sync against brute force on small worlds, and at the size of Qwen3-30B-A3B."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from fake_gpt import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.architecture import FAMILIES, Architecture, Experts
from megatron_seirenes.bridge.layout import Shard, regions
from megatron_seirenes.bridge.plan import BUCKET_BYTES, Plan, plan_sync
from megatron_seirenes.bridge.plan_layouts import EngineLayout, Rect, TrainingLayout, tensor_classes
from megatron_seirenes.bridge.weight_map import build_weight_map
from megatron_seirenes.errors import UsageError

Holding = dict[str, np.ndarray]
"""A mask of each published tensor: what one rank has."""

QWEN3_30B_A3B = Architecture(
    family=FAMILIES["qwen3_moe"],
    layers=48,
    hidden=2048,
    ffn_size=6144,
    heads=32,
    kv_heads=4,
    head_dim=128,
    vocabulary=151_936,
    max_positions=262_144,
    norm_epsilon=1e-6,
    rope_theta=1e7,
    tied_embeddings=False,
    experts=Experts(count=128, per_token=8, ffn_size=768, normalize_weights=True),
)


def small(family: str, tied: bool = False) -> Architecture:
    experts = Experts(count=4, per_token=2, ffn_size=8, normalize_weights=True) if FAMILIES[family].moe else None
    shape = {"layers": 4, "hidden": 8, "ffn_size": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "vocabulary": 90}
    return tiny(family, tied, **shape, experts=experts)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Architecture, TrainingLayout, EngineLayout]:
    """A model, and two layouts of up to four ranks that fit it."""
    world = draw(st.sampled_from((1, 2, 4)))
    architecture = small(draw(st.sampled_from(sorted(FAMILIES))), draw(st.booleans()))

    def dividing(number: int, limit: int = 4) -> int:
        return draw(st.sampled_from([size for size in (1, 2, 4) if number % size == 0 and size <= limit]))

    pipeline = dividing(world)
    rest = world // pipeline
    expert_tensor = dividing(rest)
    training = TrainingLayout(
        world,
        tensor=dividing(rest, limit=2),
        pipeline=pipeline,
        virtual_pipeline=dividing(4 // pipeline),
        expert=dividing(rest // expert_tensor),
        expert_tensor=expert_tensor,
    )
    tensor = dividing(world)
    return architecture, training, EngineLayout(world, tensor, dividing(world // tensor), draw(st.booleans()))


def masks(architecture: Architecture) -> Holding:
    tensors = build_weight_map(architecture).tensors.values()
    return {one.name: np.zeros((one.shape[0], one.shape[1] if len(one.shape) > 1 else 1), bool) for one in tensors}


def megatron_holding(architecture: Architecture, training: TrainingLayout, rank: int) -> Holding:
    """From Megatron's own order of ranks: tensor, context, data, pipeline; experts tensor, expert, data, pipeline."""
    held = masks(architecture)
    stage = rank // (training.world // training.pipeline)
    experts = range(architecture.experts.count if architecture.experts else 0)
    expert_rank = rank // training.expert_tensor % training.expert
    shard = Shard(
        rank % training.tensor,
        training.tensor,
        rank % training.expert_tensor,
        training.expert_tensor,
        expert_rank,
        training.expert,
    )
    chunk = architecture.layers // (training.pipeline * training.virtual_pipeline)
    layers = [
        layer
        for virtual in range(training.virtual_pipeline)
        for layer in range(
            (virtual * training.pipeline + stage) * chunk, (virtual * training.pipeline + stage + 1) * chunk
        )
    ]
    first, last = stage == 0, stage == training.pipeline - 1
    padded = -(-architecture.vocabulary // training.tensor) * training.tensor
    weight_map = build_weight_map(architecture, padded)
    mine = shard.experts(len(experts)) if experts else range(0)
    for name in weight_map.expected(layers, mine, first, last):
        for copy in regions(weight_map.parameters[name], shard):
            held[copy.hf_name][copy.hf_index if len(copy.hf_index) > 1 else (*copy.hf_index, slice(None))] = True
    return held


def vllm_holding(architecture: Architecture, engine: EngineLayout, rank: int) -> Holding:
    """Written from vLLM's layers, number by number."""
    need = masks(architecture)
    place, size = rank % engine.tensor, engine.tensor
    spot, spots = rank % (engine.tensor * engine.data), engine.tensor * engine.data
    head = architecture.head_dim

    def share(length: int, at: int, of: int) -> slice:
        assert length % of == 0
        return slice(at * length // of, (at + 1) * length // of)

    for name, mask in need.items():
        rows, columns = mask.shape
        if ".experts." in name:
            expert, count = int(name.split(".experts.")[1].split(".")[0]), architecture.experts.count
            if engine.expert_parallel:
                mask[:] = expert in np.array_split(np.arange(count), spots)[spot]
            elif "down_proj" in name:
                mask[:, share(columns, spot, spots)] = True
            else:
                mask[share(rows, spot, spots)] = True
        elif "q_proj" in name:
            mask[share(rows, place, size)] = True
        elif "k_proj" in name or "v_proj" in name:
            held = max(1, architecture.kv_heads // size)
            start = place * architecture.kv_heads // size
            mask[start * head : (start + held) * head] = True
        elif "o_proj" in name or "down_proj" in name:
            mask[:, share(columns, place, size)] = True
        elif "gate_proj" in name or "up_proj" in name:
            mask[share(rows, place, size)] = True
        elif "embed_tokens" in name or "lm_head" in name:
            mask[share(-(-rows // 64) * 64, place, size)] = True
        else:
            mask[:] = True
    return need


def cells(mask: np.ndarray, rect: Rect) -> np.ndarray:
    return mask[rect.row : rect.row_end, rect.column : rect.column_end]


@settings(max_examples=60, deadline=None)
@given(layouts(), st.integers(1, 3), st.integers(60, 4000))
def test_every_byte_arrives_once_and_only_what_is_missing_travels(
    case: tuple[Architecture, TrainingLayout, EngineLayout], ranks_per_node: int, bucket: int
) -> None:
    architecture, training, engine = case
    plan = plan_sync(architecture, training, engine, bucket_bytes=bucket, ranks_per_node=ranks_per_node)
    held = [megatron_holding(architecture, training, rank) for rank in range(plan.world)]
    need = [vllm_holding(architecture, engine, rank) for rank in range(plan.world)]
    arrived = [{name: mask.astype(int) * 0 for name, mask in one.items()} for one in need]
    travelled = np.zeros(plan.world, int)
    for name, step in plan.steps:
        for flow in step.flows:
            for sender, receiver in zip(flow.senders, flow.receivers, strict=True):
                assert cells(held[sender][name], flow.rect).all()
                cells(arrived[receiver][name], flow.rect)[:] += 1
                travelled[receiver] += (sender != receiver) * flow.rect.area * plan.itemsize
    for rank in range(plan.world):
        for name, mask in need[rank].items():
            assert (arrived[rank][name] == mask).all(), (rank, name)
    missing = [sum(int((mask & ~held[r][name]).sum()) for name, mask in need[r].items()) for r in range(plan.world)]
    assert plan.bound.total == plan.itemsize * sum(missing)
    assert plan.bound.largest_ingress == plan.itemsize * max(missing)
    assert plan.total == plan.bound.total
    assert (plan.received == travelled).all()


@settings(max_examples=30, deadline=None)
@given(layouts(), st.integers(60, 4000))
def test_buckets_are_bounded_and_hold_every_step(
    case: tuple[Architecture, TrainingLayout, EngineLayout], bucket: int
) -> None:
    plan = plan_sync(*case, bucket_bytes=bucket)
    assert plan.buckets[0] == 0 and plan.buckets[-1] == len(plan.steps)
    for start, stop in zip(plan.buckets, plan.buckets[1:], strict=False):
        inside = [step for _, step in plan.steps[start:stop]]
        rows_one_by_one = len(inside) == 1
        assert np.max(sum(step.sent + step.received for step in inside)) <= bucket or rows_one_by_one
    finished = [name for name, step in plan.steps if step.complete]
    assert sorted(finished) == sorted(build_weight_map(case[0]).tensors)


@settings(max_examples=60, deadline=None)
@given(layouts(), st.floats(0.0, 1.0))
def test_two_buckets_and_their_tensors_fit_into_two_buckets(
    case: tuple[Architecture, TrainingLayout, EngineLayout], size: float
) -> None:
    architecture, _, _ = case
    sizes = [math.prod(tensor.shape) * 2 for tensor in build_weight_map(architecture).tensors.values()]
    two_largest = sum(sorted(sizes)[-2:])
    one_row = 2 * max(tensor.shape[-1] for tensor in build_weight_map(architecture).tensors.values())
    # Large enough for two tensors together, and for a row that is sent to all ranks at once.
    bucket = int(two_largest / 1.5 + size * sum(sizes)) + 4 * 8 * one_row
    assert most_held(plan_sync(*case, bucket_bytes=bucket), architecture) <= 2 * bucket


def test_a_large_step_waits_until_the_large_tensors_before_it_are_through() -> None:
    shape = {"layers": 4, "hidden": 32, "ffn_size": 256, "heads": 8, "kv_heads": 1, "head_dim": 16, "vocabulary": 64}
    architecture = tiny("qwen3", True, **shape)
    training, engine = TrainingLayout(4, tensor=2, pipeline=2), EngineLayout(4, tensor=1)
    plan = plan_sync(architecture, training, engine, bucket_bytes=23_393)
    assert any(start == stop for start, stop in pairwise(plan.buckets)), "by an empty bucket"
    assert most_held(plan, architecture) <= 2 * 23_393


@settings(max_examples=30, deadline=None)
@given(layouts())
def test_what_a_rank_sees_is_the_plan(case: tuple[Architecture, TrainingLayout, EngineLayout]) -> None:
    plan = plan_sync(*case)
    sends: dict[tuple[int, int, str], list[Rect]] = defaultdict(list)
    receives: dict[tuple[int, int, str], list[Rect]] = defaultdict(list)
    for rank in range(plan.world):
        for name, _, out, into in plan.moves(rank):
            for move in out:
                sends[rank, move.peer, name].append(move.rect)
            for move in into:
                if move.peer != rank:
                    receives[move.peer, rank, name].append(move.rect)
    assert sends == receives


PAIRS = [
    (TrainingLayout(8, tensor=2, expert=8), EngineLayout(8, tensor=8)),
    (TrainingLayout(16, tensor=2, expert=8), EngineLayout(16, tensor=8)),
    (TrainingLayout(16, tensor=2, expert=8), EngineLayout(16, tensor=4, expert_parallel=True)),
    (TrainingLayout(32, tensor=4, expert=8), EngineLayout(32, tensor=2)),
    (TrainingLayout(64, tensor=2, pipeline=2, expert=16), EngineLayout(64, tensor=4, data=2, expert_parallel=True)),
    (TrainingLayout(128, tensor=4, pipeline=4, virtual_pipeline=3, expert=8), EngineLayout(128, tensor=8)),
    (TrainingLayout(256, tensor=2, context=2, expert=32), EngineLayout(256, tensor=8, expert_parallel=True)),
    (TrainingLayout(512, tensor=4, pipeline=2, expert=16, expert_tensor=2), EngineLayout(512, tensor=4)),
    (TrainingLayout(1024, pipeline=8, expert=64), EngineLayout(1024, tensor=4, data=4, expert_parallel=True)),
    (TrainingLayout(1024, tensor=4, pipeline=4, expert=8, expert_tensor=4), EngineLayout(1024, tensor=8)),
]


def most_held(plan: Plan, architecture: Architecture) -> int:
    """Bytes of the busiest rank, of two buckets under way, what the first puts together and the tensor before."""
    tensors = build_weight_map(architecture).tensors
    sizes = [math.prod(tensors[name].shape) * plan.itemsize for name, _ in plan.steps]
    forerunner, last = [0], 0
    for (name, _), (following, _), size in zip(plan.steps, plan.steps[1:], sizes, strict=False):
        last = size if following != name else last
        forerunner.append(last)
    held = [size + before for size, before in zip(sizes, forerunner, strict=True)]
    spans = [slice(*edges) for edges in pairwise(plan.buckets)]
    loads = [sum(step.sent + step.received for _, step in plan.steps[span]) for span in spans] + [0]
    return max(
        int(np.max(load + later)) + max(held[span], default=0)
        for span, load, later in zip(spans, loads, loads[1:], strict=False)
    )


@pytest.mark.parametrize("pair", range(len(PAIRS)))
def test_a_30b_mixture_of_experts(pair: int) -> None:
    training, engine = PAIRS[pair]
    started = time.process_time()
    plan: Plan = plan_sync(QWEN3_30B_A3B, training, engine)
    seconds = time.process_time() - started
    assert seconds < 10
    assert plan.total <= 1.05 * plan.bound.total
    assert int(plan.received.max()) <= 1.05 * plan.bound.largest_ingress
    assert most_held(plan, QWEN3_30B_A3B) <= 2 * BUCKET_BYTES
    mean = plan.total / plan.world
    print(
        f"\n{training}\n{engine}: {seconds:.2f} s, {plan.total / 1e9:.1f} GB, bound {plan.bound.total / 1e9:.1f} GB, "
        f"ingress {plan.received.max() / 1e9:.2f} GB, egress {plan.sent.max() / 1e9:.2f} GB "
        f"({plan.sent.max() / mean:.2f} of the mean), {len(plan.buckets) - 1} buckets, "
        f"critical {plan.critical / 1e9:.2f} GB"
    )


def test_layouts_that_do_not_fit_are_refused() -> None:
    def refused(training: TrainingLayout, engine: EngineLayout, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            tensor_classes(QWEN3_30B_A3B, training, engine)

    with pytest.raises(UsageError, match="does not divide 6 ranks"):
        TrainingLayout(6, tensor=4)
    with pytest.raises(UsageError, match="replicas of 4 ranks do not divide 6 ranks"):
        EngineLayout(6, tensor=4)
    refused(TrainingLayout(8), EngineLayout(16), "8 ranks and the engine on 16")
    refused(TrainingLayout(5, pipeline=5), EngineLayout(5), "48 layers cannot be cut into 5 equal pipeline chunks")
    refused(TrainingLayout(3, expert=3), EngineLayout(3), "128 experts cannot be cut into 3")
    refused(TrainingLayout(6), EngineLayout(6, tensor=6), "cannot be cut into 6|no multiple of 4 key-value heads")
