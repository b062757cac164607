"""Reading launcher variables and layouts; a real start and stop runs in the actor's tests."""

from __future__ import annotations

import pytest

from megatron_seirenes.config.schema import ParallelSection
from megatron_seirenes.device.distributed import _launcher_numbers, check_layout, start_distributed, stop_distributed
from megatron_seirenes.errors import UsageError

COMPLETE = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_a_direct_start_becomes_a_world_of_one() -> None:
    environment = {"HOME": "/home"}
    assert _launcher_numbers(environment) == (0, 1, 0)
    assert environment["WORLD_SIZE"] == "1"
    assert environment["MASTER_ADDR"] == "127.0.0.1"
    assert 0 < int(environment["MASTER_PORT"]) < 65536
    assert _launcher_numbers(environment) == (0, 1, 0)
    stop_distributed(environment)
    assert environment == {"HOME": "/home"}


def test_a_launcher_is_believed() -> None:
    environment = dict(COMPLETE)
    assert _launcher_numbers(environment) == (1, 4, 1)
    stop_distributed(environment)
    assert environment == COMPLETE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": ""}, "MASTER_PORT set, RANK missing"),
        ({"MASTER_ADDR": "", "MASTER_PORT": ""}, "MASTER_ADDR, MASTER_PORT missing"),
        ({"RANK": "4"}, "RANK is 4, WORLD_SIZE 4"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"WORLD_SIZE": "four"}, "WORLD_SIZE is 'four'"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is 70000"),
    ],
)
def test_wrong_variables_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        start_distributed(ParallelSection(), {**COMPLETE, **change})


def test_layouts_must_divide_the_world() -> None:
    check_layout(ParallelSection(tensor=2, pipeline=2, expert=2, expert_tensor=1), 8)
    with pytest.raises(UsageError, match=r"parallel\.tensor 3.*= 3 does not divide the 4 processes"):
        check_layout(ParallelSection(tensor=3), 4)
    with pytest.raises(UsageError, match=r"parallel\.expert 8.*= 8 does not divide the 4 processes"):
        check_layout(ParallelSection(expert=8), 4)
