"""Seconds of one collection step, by what takes them: arithmetic on FLOPs, bytes and the stated rates.

Training and scoring: model FLOPs at the stated share of the peak, the pipeline's bubble, and what tensor, expert and
data parallelism send, none of it hidden. Decoding: a step reads the weights that its batch touches and the cache of
every running sequence, and pays its latency; as many sequences run as the cache holds, and the longest ends alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.plan import Plan
from megatron_seirenes.bridge.plan_layouts import TrainingLayout
from megatron_seirenes.planning.machine import Machine, Rates
from megatron_seirenes.planning.memory import Layout, cache_tokens, data_parallel_sizes, stage_parameters
from megatron_seirenes.planning.shapes import (
    active_parameters,
    expert_parameters,
    kv_bytes_per_token,
    parameters,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """What one step does. Tokens are a sequence's mean; `longest` is its limit. Defaults: the paper's Seirênes step.

    256 questions x (8 answers + 2 hints + 2 x 8 answers under hints); of them 128 x 8 + 256 + 128 x 8 are trained on,
    in three updates. The mean response length is an assumption: nothing published gives it.
    """

    sequences: int = 6_656
    prompt_tokens: float = 500
    response_tokens: float = 4_000
    longest: int = 16_384
    trained: int = 2_304
    updates: int = 3
    scoring_passes: float = 1.0
    max_running: int = 256

    @property
    def length(self) -> float:
        return self.prompt_tokens + self.response_tokens


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of a step."""

    rollout: float
    scoring: float
    training: float
    sync: float

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self))


def duration_of(
    architecture: Architecture,
    layout: Layout,
    kv_bytes: float,
    work: Workload,
    machine: Machine,
    rates: Rates = Rates(),  # noqa: B008 - frozen
    plan: Plan | None = None,
) -> Duration:
    """The seconds of one step. Without `plan` the sync counts as 0."""
    return Duration(
        rollout=rollout_seconds(architecture, layout, kv_bytes, work, machine, rates),
        scoring=_pass_seconds(architecture, layout, work, work.sequences * work.scoring_passes, 1, 1, machine, rates),
        training=_pass_seconds(
            architecture,
            layout,
            work,
            work.trained,
            4 if layout.recompute == "full" else 3,
            work.updates,
            machine,
            rates,
        )
        + work.updates * _gradient_seconds(architecture, layout.training, machine, rates),
        sync=sync_seconds(plan, machine, rates) if plan else 0.0,
    )


def forward_flops(architecture: Architecture, length: float) -> float:
    """FLOPs of one token of a forward pass in a sequence of `length` tokens, causal attention counted by half."""
    query = architecture.heads * architecture.head_dim
    return 2.0 * active_parameters(architecture) + 2.0 * query * architecture.layers * length


def sync_seconds(plan: Plan, machine: Machine, rates: Rates) -> float:
    """NVLink and network one after the other, each by its busiest rank."""
    far, near = plan.far, plan.received - plan.far
    return float(far.max() / machine.network_bandwidth + near.max() / machine.node_bandwidth) / rates.link


def rollout_seconds(
    architecture: Architecture, layout: Layout, kv_bytes: float, work: Workload, machine: Machine, rates: Rates
) -> float:
    engine = layout.engine
    replicas = engine.world // engine.replica
    sequences = work.sequences / replicas
    held = cache_tokens(architecture, engine, kv_bytes) / work.length
    running = max(1.0, min(sequences, held, work.max_running * engine.data))
    steps = sequences * work.response_tokens / running
    tail = max(0.0, work.longest - steps)
    prefill = sequences * work.prompt_tokens * forward_flops(architecture, work.prompt_tokens)
    mfu = _mfu(architecture, rates)
    return (
        steps * _step_seconds(architecture, layout, running, work, machine, rates)
        + tail * _step_seconds(architecture, layout, 1.0, work, machine, rates)
        + prefill / (machine.flops * mfu * engine.replica)
    )


def _step_seconds(
    architecture: Architecture, layout: Layout, running: float, work: Workload, machine: Machine, rates: Rates
) -> float:
    """One engine step of `running` sequences a replica, each half-way through its mean length."""
    engine = layout.engine
    weights = parameters(architecture) - architecture.layers * expert_parameters(architecture)
    read = weights / engine.tensor
    if experts := architecture.experts:
        touched = 1 - (1 - experts.per_token / experts.count) ** running
        read += touched * architecture.layers * expert_parameters(architecture) / engine.replica
    context = work.prompt_tokens + work.response_tokens / 2
    repeats = max(1, engine.tensor // architecture.kv_heads)
    cache = running * context * kv_bytes_per_token(architecture) * repeats / engine.replica
    compute = running * forward_flops(architecture, context) / engine.replica / machine.flops
    latency = rates.step_latency + (architecture.layers * rates.layer_latency if engine.tensor > 1 else 0.0)
    return (2 * read + cache) / (machine.memory_bandwidth * rates.memory) + compute + latency


def _mfu(architecture: Architecture, rates: Rates) -> float:
    return rates.expert_mfu if architecture.experts else rates.dense_mfu


def _pass_seconds(
    architecture: Architecture,
    layout: Layout,
    work: Workload,
    sequences: float,
    forwards: int,
    batches: int,
    machine: Machine,
    rates: Rates,
) -> float:
    """`forwards` forward passes' worth of FLOPs and messages over `sequences`, in `batches` separate batches."""
    training = layout.training
    tokens = sequences * work.length
    compute = forwards * tokens * forward_flops(architecture, work.length)
    compute /= training.world * machine.flops * _mfu(architecture, rates)
    groups = training.world // (training.tensor * training.pipeline)
    micro_batches = max(1.0, tokens / groups / batches / layout.micro_batch_tokens)
    bubble = (training.pipeline - 1) / (training.virtual_pipeline * micro_batches)
    sent = forwards * (tokens / groups) * _seconds_sent_per_token(architecture, training, machine)
    return (compute + sent / rates.link) * (1 + bubble)


def _seconds_sent_per_token(architecture: Architecture, training: TrainingLayout, machine: Machine) -> float:
    """Link seconds of one token of a data-parallel rank in one pass: gathers and scatters of tensor parallelism, and
    the two exchanges of expert parallelism, whose share outside a node goes over the network."""
    layers = architecture.layers / training.pipeline
    wide = 2.0 * architecture.hidden
    seconds = 4 * wide * (training.tensor - 1) / training.tensor / machine.node_bandwidth
    if architecture.experts and training.expert > 1:
        exchanged = 2 * wide * architecture.experts.per_token / training.tensor
        spread = training.expert * training.expert_tensor
        near = min(spread, machine.gpus_per_node)
        seconds += exchanged * (near - 1) / spread / machine.node_bandwidth
        seconds += exchanged * (spread - near) / spread / machine.network_bandwidth
    return layers * seconds


def _gradient_seconds(architecture: Architecture, training: TrainingLayout, machine: Machine, rates: Rates) -> float:
    """Scattering fp32 gradients and gathering bf16 parameters once an update."""
    dense, expert = stage_parameters(architecture, training)
    sizes = data_parallel_sizes(training)
    moved = sum(6.0 * count * (size - 1) / size for count, size in zip((dense, expert), sizes, strict=True))
    node = training.world <= machine.gpus_per_node
    return moved / ((machine.node_bandwidth if node else machine.network_bandwidth) * rates.link)
