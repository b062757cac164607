"""A world of one and a tiny model of each family for all tests of the actor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_hf
import torch

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.config.schema import Config, ParallelSection
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.device.distributed import start_distributed, stop_distributed


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """A world of one for as long as a module runs: other rooms' tests start worlds of their own in this process."""
    yield start_distributed(ParallelSection()).backend
    stop_distributed()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tiny_hf.save_model(tiny_hf.make_model(name), tmp_path_factory.mktemp(name))
        return made[name]

    return folder


@pytest.fixture
def make_actor(backend: Backend, model_folder: Callable[[str], Path]) -> Callable[..., Actor]:
    def make(name: str, sampled_vocabulary: int | None = None, **sections: dict[str, object]) -> Actor:
        config = Config.model_validate({"model": {"dtype": "float32"}, **sections})
        folder = model_folder(name)
        actor = Actor(read_architecture(folder), config, backend, sampled_vocabulary=sampled_vocabulary)
        actor.load_hf(folder)
        return actor

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
