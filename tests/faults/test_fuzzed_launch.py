"""Launcher variables of every kind: numbers that make sense, or one message that names them."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.config.schema import ParallelSection
from megatron_seirenes.device.distributed import _launcher_numbers, check_layout
from megatron_seirenes.errors import UsageError

pytestmark = pytest.mark.faults

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
VALUES = st.sampled_from(["", "0", "1", "2", "-1", "1.5", "abc", "٣", " 1", "99999999999", "localhost"]) | st.text(
    max_size=4
)


@settings(max_examples=400)
@given(environment=st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_variables(environment: dict[str, str]) -> None:
    given_names = [name for name in NAMES if environment.get(name)]
    try:
        rank, size, local_rank = _launcher_numbers(environment)
    except UsageError as error:
        message = str(error)
        assert given_names and any(name in message for name in NAMES)
    else:
        assert 0 <= rank < size and local_rank >= 0
        assert len(given_names) in (0, len(NAMES))


@settings(max_examples=100)
@given(tensor=st.integers(1, 4), pipeline=st.integers(1, 3), expert=st.integers(1, 4), size=st.integers(1, 16))
def test_layouts(tensor: int, pipeline: int, expert: int, size: int) -> None:
    parallel = ParallelSection(tensor=tensor, pipeline=pipeline, expert=expert)
    fits = size % (tensor * pipeline) == 0 and size % (tensor * expert * pipeline) == 0
    with nullcontext() if fits else pytest.raises(UsageError, match="does not divide"):
        check_layout(parallel, size)
