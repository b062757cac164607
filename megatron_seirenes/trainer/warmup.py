"""Supervised cold start: a policy learns prompt/response records before it plays, with the actor it will play with.

Phases follow one another on one optimizer. Each shuffles its records anew every epoch by a stable seed and ends after
`steps` updates, or earlier once the moving mean of the loss (nats a response token) is under `until_loss`. The result
is a Hugging Face folder, written at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_seirenes.actor.sequences import TokenSequence, TrainingSequence
from megatron_seirenes.config.schema import Config, WarmupPhase
from megatron_seirenes.errors import ConfigError, DataError, SeirenesError
from megatron_seirenes.objectives.surrogate import supervised
from megatron_seirenes.problems.supervised import Record, read_records
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.trainer.assembly import PolicyAssets, open_policy
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_actor, open_world
from megatron_seirenes.trainer.warmup_progress import WarmupProgress

if TYPE_CHECKING:
    from megatron_seirenes.actor.actor import Actor

MOVING_MEAN = 0.9


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """How a phase ended: updates done and the moving mean of the loss."""

    steps: int
    loss: float


def warmup(config: Config) -> None:
    """Runs every phase of `config.warmup` and writes `warmup.out`. Raises ConfigError, DataError."""
    from megatron_seirenes.bridge.export import export_hf_folder

    if not config.warmup.phases or config.warmup.out is None:
        raise ConfigError("warmup", ["warmup.phases and warmup.out: both must be given to warm up a policy"])
    out = Path(config.warmup.out)
    directory = RunDirectory.of(config)
    assets = open_policy(config, directory)
    directory.create()
    phases = [
        (phase, encode_records(read_records(phase.records), assets, phase.records)) for phase in config.warmup.phases
    ]
    with ExitStack() as stack:
        actor = open_actor(config, assets, open_world(config, stack))
        progress = stack.enter_context(WarmupProgress(len(phases), config.observe.console))
        for number, (phase, sequences) in enumerate(phases, start=1):
            progress.begin(number, phase.steps)
            result = run_phase(
                actor, phase, sequences, stable_seed(config.run.seed, "warmup", number), progress.updated
            )
            progress.end(result.steps, result.loss)
        export_hf_folder(actor.modules, assets.architecture, out, assets.folder, config.model.dtype)


def encode_records(records: Sequence[Record], assets: PolicyAssets, source: str) -> list[TokenSequence]:
    """Records as token sequences: the prompt through the chat template, the response closed by the stop token."""
    stop = assets.stop_ids[0]
    sequences = []
    for row, record in enumerate(records, start=1):
        prompt = assets.chat.encode(record.messages)
        response = (*assets.tokenizer(record.response, add_special_tokens=False)["input_ids"], stop)
        if len(prompt) + len(response) > assets.architecture.max_positions:
            raise DataError(
                f"{source}: row {row}: {len(prompt)} prompt and {len(response)} response tokens; "
                f"the model's context is {assets.architecture.max_positions}"
            )
        sequences.append(TokenSequence(prompt, response))
    return sequences


def run_phase(
    actor: Actor,
    phase: WarmupPhase,
    sequences: Sequence[TokenSequence],
    seed: int,
    on_update: Callable[[float, float], None],
) -> PhaseResult:
    """One phase on `sequences`; `on_update` is told the loss and the rate of each update. Raises SeirenesError."""
    batches = endless_batches(len(sequences), phase.batch_size, seed if phase.shuffle else None)
    loss_function = supervised()
    moving: float | None = None
    step = 0
    for step in range(1, phase.steps + 1):
        batch = [sequences[index] for index in next(batches)]
        rate = learning_rate(phase, step)
        report = actor.update(weighted(batch), loss_function, learning_rate=rate)
        if report.skipped:
            raise SeirenesError(
                f"warm-up: the gradient of update {step} is not finite; lower warmup.phases lr ({phase.lr:g})"
            )
        moving = report.loss if moving is None else MOVING_MEAN * moving + (1 - MOVING_MEAN) * report.loss
        on_update(moving, rate)
        if phase.until_loss is not None and step >= phase.min_steps and moving < phase.until_loss:
            break
    return PhaseResult(step, moving if moving is not None else float("nan"))


def weighted(batch: Sequence[TokenSequence]) -> list[TrainingSequence]:
    """The batch with the weight that makes the summed loss a mean over its response tokens."""
    weight = 1.0 / sum(len(sequence.response_ids) for sequence in batch)
    return [
        TrainingSequence(
            prompt_ids=sequence.prompt_ids,
            response_ids=sequence.response_ids,
            old_logprobs=(0.0,) * len(sequence.response_ids),
            advantage=1.0,
            weight=weight,
        )
        for sequence in batch
    ]


def learning_rate(phase: WarmupPhase, step: int) -> float:
    """Linear ramp over `ramp_steps`, then linear decay to `decay * lr` at `steps`; `step` counts from 1."""
    ramp = min(1.0, step / phase.ramp_steps) if phase.ramp_steps else 1.0
    fall = 1.0 - (1.0 - phase.decay) * (step - 1) / max(1, phase.steps - 1)
    return phase.lr * ramp * fall


def endless_batches(count: int, size: int, seed: int | None) -> Iterator[list[int]]:
    """Batches of indices below `count`, epoch after epoch, each in an order of its own; in order without a seed."""
    if count == 0:
        raise ValueError("no records to draw batches from")
    order: list[int] = []
    epoch = 0
    while True:
        while len(order) < size:
            fresh = list(range(count))
            if seed is not None:
                random.Random(stable_seed(seed, epoch)).shuffle(fresh)
            order += fresh
            epoch += 1
        yield order[:size]
        order = order[size:]
