"""Saves and loads model, optimizer and step count by Megatron-Core's distributed checkpointing.

Loading in the layout that saved gives back the same bits, and any other layout takes them over, however many optimizers
Megatron-Core makes of it (experts that are spread over ranks have one of their own). For that only tensors are saved of
the optimizer: hyper-parameters come from the configuration, and every step of AdamW counts in `updates`.

Four faults of the upstream code are mended here; where that takes a patch, it lasts for a `with` block and the version
is checked first:

* `DistributedOptimizer.get_parameter_state_dp_zero` closes the gaps between buckets, and `fully_reshardable` looks for
  parameters where they lie with the gaps: behind the first gap it saves other numbers (in a pipeline a shared embedding
  has a bucket of its own, with a gap behind it unless its length divides by 128 and the data-parallel size);
* `DistributedOptimizer._set_main_param_and_optimizer_states` wants a `step` beside every loaded state of torch's AdamW,
  which the `fully_reshardable` format does not carry (KeyError);
* `DistributedOptimizer.load_state_dict` gives all parameters one `step` tensor, to which torch's AdamW adds once a
  parameter: training goes on silently wrong;
* saving starts a manager process for a queue that only this process uses, and the process imports the main script anew.

Refuses a folder that holds no complete checkpoint, and a Megatron-Core that the mends were not written for.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import pickle
import queue
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.mapping import LocalNonpersistentObject, ShardedBase
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.transformer.module import MegatronModule
from torch.distributed.checkpoint.api import CheckpointException

from megatron_seirenes.actor.optimizer import ActorOptimizer
from megatron_seirenes.errors import DataError, MissingComponentError

SUPPORTED_MEGATRON = ("0.19.2",)

_UNREADABLE = (OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError)
"""What reading a file that is torn, empty or not a checkpoint raises."""


def save_checkpoint(folder: Path, modules: Sequence[MegatronModule], optimizer: ActorOptimizer) -> None:
    """Writes a checkpoint into `folder`. Collective; call within the actor scope.

    Raises OSError when the disk refuses, on every rank.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
    dist.barrier()
    models, sharded = _sharded(modules, optimizer, is_loading=False)
    state = {**models, "optimizer": _tensors(sharded), "updates": optimizer.updates}
    try:
        with _writing_in_this_process():
            dist_checkpointing.save(state, str(folder))
    except CheckpointException as error:  # a BaseException, which names the class of the fault at the most
        reason = str(error).strip().splitlines()[-1]
        free = shutil.disk_usage(folder).free
        raise OSError(errno.EIO, f"{reason}; {free:,} bytes are free there", str(folder)) from None


def load_checkpoint(folder: Path, modules: Sequence[MegatronModule], optimizer: ActorOptimizer) -> None:
    """Loads what `save_checkpoint` wrote, into models of the same shape. Collective; call within the actor scope.

    Raises DataError when the folder holds no complete checkpoint of this shape.
    """
    models, sharded = _sharded(modules, optimizer, is_loading=True)
    wanted = {**models, "optimizer": _tensors(sharded), "updates": 0}
    try:
        state = dist_checkpointing.load(wanted, str(folder))
        whole = _filled(sharded, state["optimizer"])
    except (CheckpointingException, CheckpointException, *_UNREADABLE) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[-1]
        raise DataError(f"{folder}: cannot be loaded as a checkpoint of this actor: {reason}") from error
    for name, module in zip(_model_names(modules), modules, strict=True):
        module.load_state_dict(state[name])
    optimizer.updates = state["updates"]
    _write_step(whole, optimizer.updates, torch_adam=bool(_torch_optimizers(optimizer)))
    with _step_beside_loaded_state():
        optimizer.megatron.load_state_dict(whole)
    _own_steps(optimizer)


def _sharded(
    modules: Sequence[MegatronModule], optimizer: ActorOptimizer, is_loading: bool
) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Megatron-Core's descriptions of the models, by name, and of the optimizer."""
    for inner in _torch_optimizers(optimizer):
        _create_adam_state(inner)
    metadata = {
        "distrib_optim_sharding_type": "fully_reshardable",
        "chained_optim_avoid_prefix": True,  # experts have an optimizer of their own in some layouts, and in others not
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    models = {
        name: module.sharded_state_dict(metadata=metadata)
        for name, module in zip(_model_names(modules), modules, strict=True)
    }
    whole = models["model"] if len(models) == 1 else models
    with _gaps_between_buckets():
        return models, optimizer.megatron.sharded_state_dict(whole, is_loading=is_loading, metadata=metadata)


def _tensors(state: Any) -> Any:
    """What of a state is stored as tensors, in nested dicts: a list becomes a dict by position. Empty: None."""
    if isinstance(state, LocalNonpersistentObject):
        return None
    if isinstance(state, ShardedBase):
        return state
    found = {key: tensors for key, part in _parts(state) if (tensors := _tensors(part)) is not None}
    return found or None


def _filled(state: Any, tensors: Any) -> Any:
    """`state` with `tensors` in the places where `_tensors` found them, and everything else as it is.

    Raises ValueError for tensors that were taken from a state of another form.
    """
    if isinstance(state, LocalNonpersistentObject):
        return state.unwrap()
    if isinstance(state, ShardedBase):
        return tensors
    given = {} if tensors is None else tensors
    if not isinstance(given, dict):
        raise ValueError("its optimizer state has the form of another version")
    if isinstance(state, dict):
        return {key: _filled(part, given.get(key)) for key, part in state.items()}
    if isinstance(state, list):
        return [_filled(part, given.get(index)) for index, part in enumerate(state)]
    return state


def _parts(state: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(state, dict):
        return state.items()
    return enumerate(state) if isinstance(state, list) else ()


def _model_names(modules: Sequence[MegatronModule]) -> list[str]:
    return ["model"] if len(modules) == 1 else [f"model{index}" for index in range(len(modules))]


def _torch_optimizers(optimizer: ActorOptimizer) -> list[torch.optim.Optimizer]:
    """torch's own AdamW inside Megatron-Core's optimizers; empty where Transformer Engine's is used."""
    inner = [part.optimizer for part in optimizer.megatron.chained_optimizers]
    return [one for one in inner if isinstance(one, torch.optim.AdamW)]


def _create_adam_state(inner: torch.optim.Optimizer) -> None:
    """What AdamW makes in its first step, for parameters that have had none: there must be a state to load into."""
    for parameter in (one for group in inner.param_groups for one in group["params"]):
        if not inner.state[parameter]:
            inner.state[parameter] = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def _write_step(state: Any, step: int, torch_adam: bool) -> None:
    """Writes the number of steps taken where optimizers look for it.

    Transformer Engine's AdamW keeps it in its parameter groups, as does a distributed optimizer between saving and
    loading; torch's has one a parameter, which Megatron-Core makes of `common_step`.
    """
    if not isinstance(state, dict):
        return
    for group in state.get("param_groups", ()):
        if "step" in group or not torch_adam:
            group["step"] = step
    if torch_adam and "param_groups" in state and "state" in state:
        state["state"]["common_step"] = torch.tensor(float(step))
    for part in state.values():
        _write_step(part, step, torch_adam)


def _own_steps(optimizer: ActorOptimizer) -> None:
    """Every parameter its own `step` tensor."""
    for inner in _torch_optimizers(optimizer):
        for state in inner.state.values():
            state["step"] = state["step"].clone()


@contextlib.contextmanager
def _gaps_between_buckets() -> Iterator[None]:
    _check_version()
    original = DistributedOptimizer.get_parameter_state_dp_zero

    def with_gaps(self: DistributedOptimizer, *arguments: Any, **keywords: Any) -> dict[Any, Any] | None:
        state: dict[Any, Any] | None = original(self, *arguments, **keywords)
        if state is None:
            return None
        for number, buffer in enumerate(self.buffers):
            for tensors in state[number].values() if len(buffer.buckets) > 1 else ():
                for key, dense in tensors.items():
                    tensors[key] = _spread(dense, buffer) if torch.is_tensor(dense) else dense
        return state

    DistributedOptimizer.get_parameter_state_dp_zero = with_gaps
    try:
        yield
    finally:
        DistributedOptimizer.get_parameter_state_dp_zero = original


def _spread(dense: torch.Tensor, buffer: Any) -> torch.Tensor:
    """A buffer's numbers [unpadded numbers] where they lie in it, with zeros in the gaps between buckets."""
    spread = dense.new_zeros(buffer.numel)
    lengths = [bucket.numel_unpadded for bucket in buffer.buckets]
    for (start, _), part in zip(buffer.bucket_indices, dense.split(lengths), strict=True):
        spread[start : start + len(part)] = part
    return spread


@contextlib.contextmanager
def _step_beside_loaded_state() -> Iterator[None]:
    _check_version()
    original = DistributedOptimizer._set_main_param_and_optimizer_states

    def with_step(self: DistributedOptimizer, model_param: Any, tensors: dict[str, Any]) -> None:
        group, order = self.model_param_group_index_map[model_param]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        original(self, model_param, {"step": state["step"], **tensors} if "step" in state else tensors)

    DistributedOptimizer._set_main_param_and_optimizer_states = with_step
    try:
        yield
    finally:
        DistributedOptimizer._set_main_param_and_optimizer_states = original


@contextlib.contextmanager
def _writing_in_this_process() -> Iterator[None]:
    _check_version()
    original = filesystem_async._results_queue
    filesystem_async._results_queue = queue.Queue()
    try:
        yield
    finally:
        filesystem_async._results_queue = original


def _check_version() -> None:
    version = importlib.metadata.version("megatron-core")
    if version not in SUPPORTED_MEGATRON:
        raise MissingComponentError(
            f"megatron-core {version} is installed; checkpoints are mended for {', '.join(SUPPORTED_MEGATRON)}: "
            "install that version, or check and extend actor/checkpoint.py"
        )
