"""Megatron-Core's checkpoint on a disk that fills up, is read-only, or broken: OSError or DataError."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from actor_samples import training_sequences, weighted_likelihood

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.errors import DataError

sys.path.append(str(Path(__file__).resolve().parents[1] / "faults"))
from small_disk import fill, make_read_only, make_writable, small_disk


@pytest.mark.faults
@pytest.mark.parametrize("room", [0, 4096, 20_000, 60_000, 100_000])
def test_a_full_disk_is_an_oserror_and_the_actor_goes_on(
    tmp_path: Path, make_actor: Callable[..., Actor], room: int
) -> None:
    actor = make_actor("qwen3_moe", optimizer={"lr": 1e-2})
    actor.update(training_sequences(), weighted_likelihood)
    with small_disk(tmp_path / "disk", 2048) as disk:
        fill(disk, leave=room)
        with pytest.raises(OSError, match="bytes are free there"):
            actor.save(disk / "actor")
        (disk / "ballast").unlink()
        actor.save(disk / "again")
        actor.update(training_sequences(), weighted_likelihood)
        expected = [parameter.clone() for parameter in actor.modules[0].parameters()]
        actor.load(disk / "again")
        actor.update(training_sequences(), weighted_likelihood)
    assert all(map(torch.equal, expected, actor.modules[0].parameters()))


@pytest.mark.faults
def test_a_read_only_folder_is_an_oserror(tmp_path: Path, make_actor: Callable[..., Actor]) -> None:
    actor = make_actor("qwen2")
    with small_disk(tmp_path / "disk", 2048) as disk:
        (disk / "actor").mkdir()
        make_read_only(disk / "actor")
        with pytest.raises(OSError, match="OSError"):
            actor.save(disk / "actor")
        make_writable(disk / "actor")


@pytest.mark.faults
@pytest.mark.parametrize("harm", ["truncate", "empty", "remove"])
def test_a_broken_file_of_a_checkpoint_is_a_data_error(
    tmp_path: Path, make_actor: Callable[..., Actor], harm: str
) -> None:
    """Snapshots are checked by digest before; this is a checkpoint that someone hands over without digests."""
    actor = make_actor("qwen3_moe")
    actor.save(tmp_path / "whole")
    for name in sorted(path.name for path in (tmp_path / "whole").iterdir()):
        folder = tmp_path / harm / name
        actor.save(folder)
        file = folder / name
        if harm == "remove":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if harm == "truncate" else b"")
        with pytest.raises(DataError, match="cannot be loaded"):
            actor.load(folder)
