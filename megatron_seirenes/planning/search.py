"""Every layout that a number of GPUs can be cut into, with what it needs; those that fit, fastest first.

Left out before counting: sizes that do not divide heads, layers, experts or GPUs, tensor parallelism across nodes,
pipelines of more than 16 stages, and context parallelism, which the actor does not train. A layout fits when the cache
that is left holds `MIN_SEQUENCES` sequences of full length a replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.plan import Plan, plan_sync
from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.planning.duration import Duration, Workload, duration_of, sync_seconds
from megatron_seirenes.planning.machine import Machine, Rates
from megatron_seirenes.planning.memory import Layout, Memory, cache_tokens, memory_of

POWERS = (1, 2, 4, 8, 16)
EXPERT_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MIN_SEQUENCES = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """One layout on paper. `sequences` of full length fit the cache of a replica; `reason` says why it does not fit."""

    layout: Layout
    memory: Memory
    sequences: float
    reason: str | None
    duration: Duration | None = None
    plan: Plan | None = None


def estimates(
    architecture: Architecture,
    gpus: int,
    machine: Machine,
    work: Workload = Workload(),  # noqa: B008 - frozen
    rates: Rates = Rates(),  # noqa: B008 - frozen
    top: int = 10,
) -> list[Estimate]:
    """All layouts of `gpus` GPUs: those that fit by step time, then the others by how much they lack.

    The sync of the first `top` is planned exactly and counted; it is the same small part of the others.
    """
    all_of_them = [
        _estimate(architecture, layout, machine, work, rates) for layout in layouts(architecture, gpus, machine)
    ]
    fitting = sorted((one for one in all_of_them if one.duration), key=_seconds)
    best = [_with_sync(architecture, one, machine, rates) for one in fitting[:top]]
    rest = sorted((one for one in all_of_them if not one.duration), key=lambda one: one.memory.total)
    return [*sorted(best, key=_seconds), *fitting[top:], *rest]


def layouts(architecture: Architecture, gpus: int, machine: Machine) -> Iterator[Layout]:
    """The candidates, in a fixed order."""
    for training in _training_layouts(architecture, gpus, machine):
        for engine in _engine_layouts(architecture, gpus, machine):
            for recompute in ("none", "full"):
                yield Layout(training, engine, recompute=recompute)


def _training_layouts(architecture: Architecture, gpus: int, machine: Machine) -> Iterator[TrainingLayout]:
    experts = architecture.experts
    for tensor in (t for t in POWERS if t <= machine.gpus_per_node and not architecture.kv_heads % t):
        for pipeline in (p for p in POWERS if not architecture.layers % p and not gpus % (p * tensor)):
            for expert in EXPERT_SIZES if experts else (1,):
                count = experts.count if experts else 1
                if count % expert == 0 and (gpus // pipeline) % expert == 0:
                    own = 1 if experts else tensor
                    yield TrainingLayout(gpus, tensor, pipeline, expert=expert, expert_tensor=own)


def _engine_layouts(architecture: Architecture, gpus: int, machine: Machine) -> Iterator[EngineLayout]:
    for tensor in (t for t in POWERS if t <= machine.gpus_per_node and not gpus % t and not architecture.heads % t):
        if not architecture.kv_heads % tensor or not tensor % architecture.kv_heads:
            yield EngineLayout(gpus, tensor)


def _estimate(architecture: Architecture, layout: Layout, machine: Machine, work: Workload, rates: Rates) -> Estimate:
    longest = int(work.prompt_tokens) + work.longest
    layout = replace(layout, micro_batch_tokens=max(layout.micro_batch_tokens, longest))
    memory = memory_of(architecture, layout, machine.memory)
    sequences = cache_tokens(architecture, layout.engine, memory.kv_cache) / longest
    if memory.total > machine.memory:
        return Estimate(layout, memory, sequences, f"{memory.total / 1e9:.0f} of {machine.memory / 1e9:.0f} GB")
    if sequences < MIN_SEQUENCES:
        return Estimate(layout, memory, sequences, f"cache for {sequences:.1f} sequences of full length a replica")
    duration = duration_of(architecture, layout, memory.kv_cache, work, machine, rates)
    return Estimate(layout, memory, sequences, None, duration)


def _with_sync(architecture: Architecture, one: Estimate, machine: Machine, rates: Rates) -> Estimate:
    assert one.duration is not None
    plan = plan_sync(architecture, one.layout.training, one.layout.engine, ranks_per_node=machine.gpus_per_node)
    return replace(one, plan=plan, duration=replace(one.duration, sync=sync_seconds(plan, machine, rates)))


def _seconds(one: Estimate) -> float:
    assert one.duration is not None
    return one.duration.total
