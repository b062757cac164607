"""Lets unmodified Megatron-Core run on a CPU, for as long as a `with` block lasts.

Megatron-Core names CUDA in its buffers, schedules, optimizers and random states. `megatron_on_cpu()` answers those
calls from the CPU while actor code runs and puts every attribute back in `finally`: vLLM, which runs in the same
process between two uses, must see the torch that it was written for. Each entry of the table says which upstream
fault it mends. Nothing is patched at import, and nothing outside the table.

Invariants: outside the block every patched attribute is the very object that it was before, also after an exception;
blocks nest, and only the outermost patches and restores; the global random state of torch is the same after as before.

Refuses a Megatron-Core version, or a signature, that the table was not written for. Not for use by several threads:
the patched attributes belong to the process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from megatron_seirenes.errors import MissingComponentError

SUPPORTED_MEGATRON = ("0.19.2",)
_CPU = torch.device("cpu")
_FACTORIES = ("zeros", "ones", "empty", "full", "tensor", "arange", "zeros_like", "ones_like", "empty_like")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Shim:
    """Replaces `owner.attribute` by `make(original)`. `parameters` are the names that the original must take."""

    owner: Any
    attribute: str
    make: Callable[[Any], Any]
    mends: str
    parameters: tuple[str, ...] = ()


class CpuEvent:
    """A CUDA event on a device that queues nothing: everything recorded has already happened."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def record(self, *args: object, **kwargs: object) -> None: ...

    def wait(self, *args: object, **kwargs: object) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: CpuEvent) -> float:
        return 0.0


class CpuStream:
    """A CUDA stream on a device that queues nothing."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def wait_stream(self, *args: object) -> None: ...

    def wait_event(self, *args: object) -> None: ...

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        return event or CpuEvent()

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


_STREAM = CpuStream()


def _always(value: Any) -> Callable[[Any], Any]:
    """A `make` that ignores the original."""
    return lambda original: value


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A tensor factory that takes a CUDA device for the CPU, where memory is never pinned."""

    @functools.wraps(factory)
    def create(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device")
        if device is not None:
            if isinstance(device, int) or torch.device(device).type == "cuda":
                kwargs["device"] = _CPU
            kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return create


def _typed_as_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    def type_of(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            return original(self).replace("torch.", "torch.cuda.", 1)
        return original(self, dtype, *args, **kwargs)

    return type_of


def _splits_as_numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def move(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
        if as_numpy and torch.is_tensor(tensor):
            return tensor.detach().numpy()
        return original(tensor, as_numpy=as_numpy, record_stream=record_stream)

    return move


def _gathers_any_lengths(original: Callable[..., Any]) -> Callable[..., Any]:
    """Gathers parts of different lengths along dimension 0: filled up to the longest, and cut again."""

    def gather(
        input_: torch.Tensor, group: Any, output_split_sizes: Any = None, use_global_buffer: bool = False
    ) -> torch.Tensor:
        if output_split_sizes is None or group.size() == 1:
            return original(input_, group, output_split_sizes, use_global_buffer)
        lengths = [int(length) for length in output_split_sizes]
        filled = input_.new_zeros((max(lengths), *input_.shape[1:]))
        filled[: len(input_)] = input_
        parts = [torch.empty_like(filled) for _ in lengths]
        torch.distributed.all_gather(parts, filled, group=group)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    return gather


def _scatters_any_lengths(original: Callable[..., Any]) -> Callable[..., Any]:
    """Sums over the group and keeps this rank's part along dimension 0, where the parts differ in length."""

    def reduce_scatter(
        input_: torch.Tensor, group: Any, input_split_sizes: Any = None, use_global_buffer: bool = False
    ) -> torch.Tensor:
        if input_split_sizes is None or group.size() == 1:
            return original(input_, group, input_split_sizes, use_global_buffer)
        lengths = [int(length) for length in input_split_sizes]
        summed = input_.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(summed, group=group)
        return summed.split(lengths)[group.rank()].clone()

    return reduce_scatter


@functools.cache
def shims() -> tuple[Shim, ...]:
    """The table. Imports Megatron-Core, so that none of it is ever imported while torch is patched."""
    for module in ("models.gpt.gpt_layer_specs", "optimizer", "pipeline_parallel.schedules", "dist_checkpointing"):
        importlib.import_module(f"megatron.core.{module}")
    from megatron.core.tensor_parallel import random as megatron_random

    version = importlib.metadata.version("megatron-core")  # megatron.core.__version__ ends in a commit of ours
    if version not in SUPPORTED_MEGATRON:
        raise MissingComponentError(
            f"megatron-core {version} is installed; on a CPU it runs through shims that were written "
            f"for {', '.join(SUPPORTED_MEGATRON)}: install that version, or check and extend device/megatron_cpu.py"
        )
    cuda = torch.cuda
    stream = _always(lambda *args, **kwargs: _STREAM)
    nothing = _always(lambda *args, **kwargs: None)
    get_state = _always(lambda device=None: torch.get_rng_state())
    table = (
        Shim(cuda, "current_device", _always(lambda: _CPU), "buffers are created on torch.cuda.current_device()"),
        *(Shim(torch, name, _on_cpu, "schedules and optimizers create on device='cuda'") for name in _FACTORIES),
        Shim(torch.Tensor, "cuda", _always(lambda self, *args, **kwargs: self), "batches are moved with .cuda()"),
        Shim(torch.Tensor, "type", _typed_as_cuda, "clipping and master weights compare type() with torch.cuda.*"),
        Shim(cuda, "manual_seed", _always(torch.manual_seed), "the random-state tracker seeds CUDA"),
        Shim(cuda, "get_rng_state", get_state, "the random-state tracker saves CUDA's state"),
        Shim(cuda.random, "get_rng_state", get_state, "the random-state tracker saves CUDA's state"),
        Shim(cuda, "set_rng_state", _always(lambda state, device=None: torch.set_rng_state(state)), "as above"),
        Shim(
            megatron_random,
            "_set_cuda_rng_state",
            _always(lambda new_state, device=-1, graph_safe=False: torch.set_rng_state(new_state)),
            "the state is set by a queued CUDA call that never runs without CUDA",
            ("new_state", "device", "graph_safe"),
        ),
        Shim(cuda, "synchronize", nothing, "schedules synchronise the device"),
        Shim(cuda, "Stream", _always(CpuStream), "dispatchers and buffers create side streams"),
        Shim(cuda, "Event", _always(CpuEvent), "dispatchers record events"),
        Shim(cuda, "current_stream", stream, "dispatchers wait on the current stream"),
        Shim(cuda, "default_stream", stream, "buffers wait on the default stream"),
        Shim(cuda, "stream", _always(lambda stream: contextlib.nullcontext()), "work is put on side streams"),
        *_expert_shims(),
    )
    for shim in table:
        _check_signature(shim)
    return table


def _expert_shims() -> tuple[Shim, ...]:
    """Of the table, what moves tokens between the ranks of experts."""
    from megatron.core.tensor_parallel import mappings
    from megatron.core.transformer.moe import token_dispatcher

    return (
        Shim(
            token_dispatcher,
            "maybe_move_tensor_to_cpu",
            _splits_as_numpy,
            "a tensor that is on the CPU already stays a tensor, but all_to_all_single wants a list of split sizes",
            ("tensor", "as_numpy", "record_stream"),
        ),
        Shim(
            mappings,
            "_gather_along_first_dim",
            _gathers_any_lengths,
            "the ranks that share an expert have different numbers of tokens, and gloo gathers equal ones only",
            ("input_", "group", "output_split_sizes", "use_global_buffer"),
        ),
        Shim(
            mappings,
            "_reduce_scatter_along_first_dim",
            _scatters_any_lengths,
            "as above",
            ("input_", "group", "input_split_sizes", "use_global_buffer"),
        ),
    )


def _check_signature(shim: Shim) -> None:
    if not shim.parameters:
        return
    seen = tuple(inspect.signature(getattr(shim.owner, shim.attribute)).parameters)
    if seen != shim.parameters:
        raise MissingComponentError(
            f"megatron-core's {shim.attribute}{seen} was expected to take {shim.parameters}: "
            f"install megatron-core {SUPPORTED_MEGATRON[-1]}, or adapt device/megatron_cpu.py"
        )


_depth = 0


@contextlib.contextmanager
def megatron_on_cpu() -> Iterator[None]:
    """While the block runs, Megatron-Core's CUDA calls are answered by the CPU. Re-entrant.

    torch.compile is switched to eager inside: Megatron-Core decorates small functions with it, and compiling them on
    a CPU costs minutes and a C++ compiler.

    Raises MissingComponentError when the installed Megatron-Core is not one that the shims were written for.
    """
    global _depth
    if _depth:
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
        return
    table = shims()
    random_state = torch.get_rng_state()
    originals: list[tuple[Shim, Any]] = []
    _depth = 1
    try:
        for shim in table:
            originals.append((shim, vars(shim.owner).get(shim.attribute, _ABSENT)))
            setattr(shim.owner, shim.attribute, shim.make(getattr(shim.owner, shim.attribute)))
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        _depth = 0
        for shim, original in reversed(originals):
            if original is _ABSENT:  # inherited: torch.Tensor takes `cuda` and `type` from its C base
                delattr(shim.owner, shim.attribute)
            else:
                setattr(shim.owner, shim.attribute, original)
        torch.set_rng_state(random_state)
