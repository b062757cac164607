"""A process that launches runs, a tiny world, and what an uninterrupted run of it leaves behind: once a session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher, outcome, train, train_ranks
from tiny_world import write_world

# Faults are tried on the toy run of the trainer's tests, too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "trainer"))


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    with Launcher(tmp_path_factory.mktemp("logs")) as launcher:
        yield launcher


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, launcher: Launcher) -> Path:
    """A folder with a warmed-up policy and the configuration of a run, `run.yaml`."""
    folder = tmp_path_factory.mktemp("world")
    warmup, _ = write_world(folder)
    launcher.run("warmup", str(warmup))
    return folder


@pytest.fixture(scope="session")
def whole_run(world: Path, launcher: Launcher) -> Path:
    """The directory of an uninterrupted run."""
    process = train(launcher, world, world / "whole")
    assert process.wait() == 0, process.output()[-4000:]
    return world / "whole"


@pytest.fixture(scope="session")
def whole(whole_run: Path) -> dict[str, Any]:
    """What an uninterrupted run leaves behind."""
    return outcome(whole_run)


@pytest.fixture(scope="session")
def whole_of_two(world: Path, launcher: Launcher) -> dict[str, Any]:
    """What an uninterrupted run of two data-parallel ranks leaves behind."""
    for rank in train_ranks(launcher, world, world / "two-whole", 2):
        assert rank.wait() == 0, rank.output()[-4000:]
    return outcome(world / "two-whole")
