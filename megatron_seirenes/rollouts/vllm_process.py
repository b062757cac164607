"""What vLLM does to the process it runs in, and how we keep that within bounds.

vLLM is configured through environment variables that it reads when it is imported, reseeds the global random
generators when an engine starts, draws from them while it runs, and on a CPU replaces `torch.set_num_threads` by a
no-op for the whole process. The actor lives in the same process, so `prepare_environment` is called once, before vLLM
is first imported, and every call into vLLM stands inside `process_state_kept` or, for a step, `torch_generator_kept`.
vLLM also remembers process groups that it made inside our world; `release_groups` lets go of them, so that a world may
end and another begin.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

import numpy
import torch

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives in this process
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
PREFERENCES = {"VLLM_LOGGING_LEVEL": "ERROR"}  # a user's own level wins


def prepare_environment(on_cuda: bool, environment: MutableMapping[str, str] = os.environ) -> None:
    """Tells vLLM how to run here. Call it before vLLM is imported; calling it again changes nothing.

    On a CPU torch's compiler is switched off too: vLLM's small compiled functions would need a C++ compiler and spend
    12 to 29 seconds on the first generation.
    """
    environment.update(SETTINGS)
    for key, value in PREFERENCES.items():
        environment.setdefault(key, value)
    if not on_cuda:
        import torch._dynamo.config

        torch._dynamo.config.disable = True


@contextmanager
def process_state_kept(device: torch.device) -> Iterator[None]:
    """Gives python's, numpy's and torch's random generators and `torch.set_num_threads` back as they were."""
    python_state, numpy_state, torch_state = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    device_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        if device_state is not None:
            torch.cuda.set_rng_state(device_state, device)
        torch.set_num_threads = set_num_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@contextmanager
def torch_generator_kept() -> Iterator[None]:
    """Gives torch's CPU generator back as it was: the only global generator that an engine step draws from."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def release_groups() -> None:
    """Destroys the groups that vLLM made, and leaves the world they were made in. No engine may be in use."""
    from vllm.distributed import parallel_state

    if not torch.distributed.is_initialized() or not parallel_state.model_parallel_is_initialized():
        return
    parallel_state.destroy_model_parallel()
    # `destroy_distributed_environment` would take the whole world down, so its other half is done here.
    world = parallel_state._WORLD
    if world is not None:
        world.destroy()
    parallel_state._WORLD = parallel_state._INNER_DP_WORLD = parallel_state._NODE_COUNT = None
