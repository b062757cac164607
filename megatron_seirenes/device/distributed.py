"""Starts and ends torch.distributed and Megatron-Core's parallel groups for this process.

Under a launcher (torchrun, or SLURM with its variables mapped) the world is read from RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR and MASTER_PORT. Started directly, the process becomes a world of one on a free port of the loopback
address, and the five variables are set until `stop_distributed`, because vLLM's `external_launcher` reads them.
Half-set or impossible variables are refused, and so is a layout that does not divide the world.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from megatron_seirenes.config.schema import ParallelSection
from megatron_seirenes.device.backend import Backend, detect_backend
from megatron_seirenes.errors import UsageError

_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_VARIABLES = (*_NUMBERS, "MASTER_ADDR", "MASTER_PORT")
_SEED = 1234  # Megatron-Core's trackers want a seed; nothing is drawn from them: weights are loaded, dropout is 0
_own_port = ""  # MASTER_PORT while this process is a world of one that it made by itself


@dataclass(frozen=True, slots=True)
class World:
    """Where this process stands among all processes of the run; ranks with one `data_rank` train on the same data."""

    rank: int
    size: int
    local_rank: int
    backend: Backend
    data_rank: int = 0


def start_distributed(
    parallel: ParallelSection,
    environment: MutableMapping[str, str] = os.environ,
    timeout: timedelta = timedelta(minutes=30),
) -> World:
    """Joins the world that the launcher describes, or makes a world of one, and builds the groups of `parallel`.

    Sets the launcher variables in `environment` when none is set. `timeout` bounds every collective.
    Raises UsageError when the launcher variables are incomplete or wrong, or the layout does not fit the world.
    """
    rank, size, local_rank = _launcher_numbers(environment)
    check_layout(parallel, size)
    environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # Megatron-Core orders overlapped kernels by it
    backend = detect_backend(local_rank)
    dist.init_process_group(
        backend.communication,
        init_method=f"tcp://{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}",
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    data_rank = _start_megatron(parallel, backend, timeout)
    return World(rank=rank, size=size, local_rank=local_rank, backend=backend, data_rank=data_rank)


def stop_distributed(environment: MutableMapping[str, str] = os.environ) -> None:
    """Destroys Megatron-Core's groups and the world, and takes back the launcher variables that were set for it.

    Does nothing when no world was started.
    """
    global _own_port
    if environment.get("MASTER_PORT") == _own_port:
        for name in _VARIABLES:
            environment.pop(name, None)
    _own_port = ""
    if not dist.is_initialized():
        return
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def check_layout(parallel: ParallelSection, world_size: int) -> None:
    """Raises UsageError when `world_size` processes cannot be laid out as `parallel` says."""
    dense = parallel.tensor * parallel.pipeline * parallel.context
    if world_size % dense:
        raise UsageError(
            f"parallel.tensor {parallel.tensor} x parallel.pipeline {parallel.pipeline} x parallel.context "
            f"{parallel.context} = {dense} does not divide the {world_size} processes that were launched"
        )
    experts = (parallel.expert_tensor or parallel.tensor) * parallel.expert * parallel.pipeline
    if world_size % experts:
        raise UsageError(
            f"parallel.expert_tensor {parallel.expert_tensor or parallel.tensor} x parallel.expert {parallel.expert} x "
            f"parallel.pipeline {parallel.pipeline} = {experts} does not divide the {world_size} processes launched"
        )


def _launcher_numbers(environment: MutableMapping[str, str]) -> tuple[int, int, int]:
    global _own_port
    present = [name for name in _VARIABLES if environment.get(name)]
    if not present:
        environment.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
        environment["MASTER_PORT"] = _own_port = str(_free_port())
        return 0, 1, 0
    missing = [name for name in _VARIABLES if name not in present]
    if missing:
        raise UsageError(
            f"launcher variables are incomplete: {', '.join(present)} set, {', '.join(missing)} missing; launch with "
            f"torchrun, set all of {', '.join(_VARIABLES)}, or unset them to run one process"
        )
    rank, size, local_rank = (_number(environment, name) for name in _NUMBERS)
    if not 0 <= rank < size:
        raise UsageError(f"launcher variables are wrong: RANK is {rank}, WORLD_SIZE {size}; 0 <= RANK < WORLD_SIZE")
    port = _number(environment, "MASTER_PORT")
    if not 0 < port < 65536:
        raise UsageError(f"launcher variables are wrong: MASTER_PORT is {port}; a port is 1 to 65535")
    return rank, size, local_rank


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"launcher variable {name} is {text!r}; a whole number was expected")
    return int(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start_megatron(parallel: ParallelSection, backend: Backend, timeout: timedelta) -> int:
    """Builds the groups of `parallel`; returns this process's data-parallel rank."""
    from megatron.core import parallel_state, tensor_parallel

    with backend.actor_scope(), torch.random.fork_rng(devices=[]):
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=parallel.tensor,
            pipeline_model_parallel_size=parallel.pipeline,
            virtual_pipeline_model_parallel_size=parallel.virtual_pipeline,
            context_parallel_size=parallel.context,
            expert_model_parallel_size=parallel.expert,
            expert_tensor_parallel_size=parallel.expert_tensor,
            distributed_timeout_minutes=timeout.total_seconds() / 60,
        )
        tensor_parallel.model_parallel_cuda_manual_seed(_SEED)
    return parallel_state.get_data_parallel_rank()
