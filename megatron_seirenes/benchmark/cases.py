"""Which layouts are measured, on what work, and what comes out: plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.errors import UsageError
from megatron_seirenes.planning.machine import MACHINES
from megatron_seirenes.planning.search import layouts

PHASES = ("rollout", "scoring", "training", "sync")


@dataclass(frozen=True, slots=True)
class Work:
    """What each step does, over all ranks. A phase is measured `repeats` times after one that does not count."""

    sequences: int = 16
    prompt_tokens: int = 32
    response_tokens: int = 64
    repeats: int = 3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One layout. `seconds` are medians over the repeats, of each phase alone and of a whole `step`.

    `peak_bytes` is the largest over the ranks: of the device's memory on CUDA, of the process on a CPU. `flops` are the
    model's, forward and backward, of one step's training. `sync_bytes` travelled between ranks. Without a `reason` all
    of them are known.
    """

    layout: str
    devices: int
    device: str = ""
    reason: str | None = None
    seconds: dict[str, float] | None = None
    peak_bytes: int = 0
    tokens: int = 0
    flops: float = 0.0
    peak_flops: float | None = None
    sync_bytes: int = 0

    def rate(self, phase: str) -> float | None:
        """Response tokens a second a device."""
        if self.seconds is None or phase == "sync":
            return None
        return self.tokens / self.seconds[phase] / self.devices

    @property
    def mfu(self) -> float | None:
        """Share of the peak that training reaches; None where the peak of the device is not known."""
        if self.seconds is None or self.peak_flops is None:
            return None
        return self.flops / self.seconds["training"] / self.devices / self.peak_flops


def overrides_of(layout: str) -> list[str]:
    """`tensor=2,rollout=2` as configuration overrides: keys of `parallel`, and `rollout` for `rollout.tensor`.

    Raises UsageError for anything that is not key=value.
    """
    overrides = []
    for part in filter(None, layout.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(f"--layout: {part!r} is not key=value, as in tensor=2,pipeline=2,rollout=2")
        overrides.append(f"rollout.tensor={value}" if key == "rollout" else f"parallel.{key}={value}")
    return overrides


def all_layouts(architecture: Architecture, devices: int) -> list[str]:
    """Every layout that `devices` devices can be cut into, whether or not it fits their memory."""
    found: dict[str, None] = {}
    for layout in layouts(architecture, devices, MACHINES["h100"]):
        training, engine = layout.training, layout.engine
        sizes = {"tensor": training.tensor, "pipeline": training.pipeline, "expert": training.expert}
        parts = [f"{key}={size}" for key, size in sizes.items() if size > 1]
        if training.tensor > 1:
            parts += ["sequence_parallel=true"]
        if architecture.experts is not None and training.tensor > 1:
            parts += [f"expert_tensor={training.expert_tensor}"]
        found[",".join([*parts, f"rollout={engine.tensor}"])] = None
    return list(found)


def known_peak(device: str) -> float | None:
    """The dense bfloat16 FLOP/s of a GPU by its name; None for any other device."""
    return next((machine.flops for key, machine in MACHINES.items() if key.upper() in device.upper()), None)


def spread(count: int, parts: int) -> Iterator[range]:
    """`count` numbers in consecutive runs, one a part, as even as can be."""
    for part in range(parts):
        yield range(part * count // parts, (part + 1) * count // parts)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
