"""A disk that refuses stops the run or not, as configured, and is never silent."""

import errno

import pytest

from megatron_seirenes.trainer.disk import Disk, DiskRefused, disk_refusals_told

FULL = OSError(errno.ENOSPC, "No space left on device", "metrics.jsonl")


def test_stop_says_what_was_refused_and_what_follows():
    with pytest.raises(DiskRefused, match=r"refused metrics: No space left on device \(metrics.jsonl\); they wait"):
        with Disk("stop", print).guard("metrics", "they wait"):
            raise FULL


def test_continue_says_so_each_time_and_goes_on():
    said: list[str] = []
    disk = Disk("continue", said.append)
    for _ in range(2):
        with disk.guard("a snapshot", "the one before stays"):
            raise FULL
    assert len(said) == 2 and all("the one before stays; the run goes on" in line for line in said)
    with pytest.raises(DiskRefused), disk.guard("the last snapshot", "nothing was saved", always_stop=True):
        raise FULL


def test_what_nobody_needs_is_said_once():
    said: list[str] = []
    disk = Disk("stop", said.append)
    for _ in range(3):
        with disk.shrug("the timeline"):
            raise FULL
    assert len(said) == 1


def test_a_refusal_that_no_guard_expected_is_a_message_too():
    with pytest.raises(DiskRefused, match="the disk refused: No space left"), disk_refusals_told():
        raise FULL
    with pytest.raises(FileNotFoundError), disk_refusals_told():
        raise FileNotFoundError(errno.ENOENT, "a bug", "somewhere")


def test_other_errors_pass():
    with pytest.raises(ValueError, match="a bug"), Disk("continue", print).guard("metrics", "they wait"):
        raise ValueError("a bug")
