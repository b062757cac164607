"""The device that this process computes on, chosen once and passed as an argument.

Everything that differs between CUDA and a CPU in our own code is asked of a `Backend`; no other module looks at
`torch.cuda.is_available()`. Megatron-Core itself assumes CUDA throughout: code that calls it runs inside
`Backend.actor_scope()`, which lends it the CPU shims of `megatron_cpu.py` on a CPU and does nothing on CUDA.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from megatron_seirenes.device.megatron_cpu import megatron_on_cpu


@dataclass(frozen=True, slots=True)
class Backend:
    """One device. `communication` is the torch.distributed back end that belongs to it."""

    device: torch.device

    @property
    def name(self) -> str:
        return self.device.type

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def communication(self) -> str:
        return "nccl" if self.is_cuda else "gloo"

    def synchronize(self) -> None:
        """Waits until the device has done all work that was queued; on a CPU nothing is ever queued."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def actor_scope(self) -> AbstractContextManager[None]:
        """The scope in which Megatron-Core may be called. Re-entrant; leaves torch as it found it."""
        return nullcontext() if self.is_cuda else megatron_on_cpu()


def detect_backend(local_rank: int = 0) -> Backend:
    """CUDA device number `local_rank` where this machine has CUDA, otherwise the CPU."""
    if not torch.cuda.is_available():
        return Backend(torch.device("cpu"))
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return Backend(device)
