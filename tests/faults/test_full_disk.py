"""A disk that fills up, turns read-only or vanishes under a toy run: nothing before is harmed, and it is said."""

from __future__ import annotations

import errno
import shutil

import pytest
from small_disk import fill, make_read_only, make_writable, small_disk
from toy_run import StopAfter, toy_config, toy_trainer

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.observe.records import read_records
from megatron_seirenes.observe.writer import MetricsWriter, read_metrics
from megatron_seirenes.trainer.disk import DiskRefused
from megatron_seirenes.trainer.snapshot import complete_snapshots, fault_of

pytestmark = pytest.mark.faults


def config_on(folder, on_failure, **snapshot) -> Config:
    settled = {"every": 2, "keep": 2, "on_failure": on_failure, **snapshot}
    return Config.model_validate({**toy_config(folder).model_dump(), "snapshot": settled})


def at_step(trainer, step, action):
    """Calls `action` when the run begins a step."""
    begins = trainer.watch.step_begins

    def step_begins(number):
        if number == step:
            action()
        begins(number)

    trainer.watch.step_begins = step_begins


def events_of(trainer) -> list[str]:
    said: list[str] = []
    trainer.watch.event = said.append
    return said


def test_a_row_that_a_full_disk_refused_is_written_later(tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        with MetricsWriter(disk / "metrics.jsonl") as writer:
            writer.append({"step": 1, "success/clean": 0.5})
            ballast = fill(disk)
            refused = 0
            for step in range(2, 80):
                try:
                    writer.append({"step": step, "success/clean": step / 100, "loss/clean": 0.123456789})
                except OSError as error:
                    refused += error.errno == errno.ENOSPC
            assert refused > 0
            written = [row["step"] for row in read_metrics(disk / "metrics.jsonl")]
            assert written == list(range(1, len(written) + 1)), "whole rows, in order"
            ballast.unlink()
            writer.append({"step": 80})
        assert [row["step"] for row in read_metrics(disk / "metrics.jsonl")] == list(range(1, 81))


def test_metrics_of_a_directory_that_vanished_are_refused(tmp_path):
    folder = tmp_path / "run"
    with MetricsWriter(folder / "metrics.jsonl") as writer:
        writer.append({"step": 1})
        shutil.rmtree(folder)
        with pytest.raises(OSError, match="removed while it was open"):
            writer.append({"step": 2})


@pytest.mark.parametrize("harm", ["full", "read-only", "vanished"])
def test_the_run_stops_and_the_snapshot_before_is_whole(tmp_path, harm):
    with small_disk(tmp_path / "disk", 4096) as disk:
        folder = disk / "run"
        config = config_on(folder, "stop")
        trainer = toy_trainer(config)
        harms = {
            "full": lambda: fill(disk),
            "read-only": lambda: make_read_only(folder / "snapshots"),
            "vanished": lambda: folder.rename(disk / "elsewhere"),
        }
        at_step(trainer, 4, harms[harm])
        with pytest.raises(DiskRefused, match="the disk refused"), trainer.watch:
            trainer.run()
        if harm == "read-only":
            make_writable(folder / "snapshots")
        if harm == "vanished":
            shutil.rmtree(folder, ignore_errors=True)
            (disk / "elsewhere").rename(folder)
        (disk / "ballast").unlink(missing_ok=True)
        (kept,) = complete_snapshots(folder / "snapshots")
        assert kept.name == "step-000002" and fault_of(kept) is None
        resumed = toy_trainer(config, resume=True)
        with resumed.watch:
            resumed.run()
        assert [row["step"] for row in read_metrics(folder / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
        assert len(list((folder / "rollouts").glob("*.gz"))) == 6


def test_the_run_goes_on_loudly_and_saves_again_when_it_can(tmp_path):
    with small_disk(tmp_path / "disk", 4096) as disk:
        trainer = toy_trainer(config_on(disk / "run", "continue"))
        said = events_of(trainer)
        at_step(trainer, 3, lambda: fill(disk))
        at_step(trainer, 6, lambda: (disk / "ballast").unlink())
        with trainer.watch:
            trainer.run()
        assert any("WARNING: the disk refused the snapshot" in line for line in said)
        names = [path.name for path in complete_snapshots(disk / "run" / "snapshots")]
        assert names[0] == "step-000006"
        assert [row["step"] for row in read_metrics(disk / "run" / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
        assert list(read_records(disk / "run" / "rollouts" / "step-000006.jsonl.gz"))


def test_a_stop_that_cannot_be_saved_is_no_saved_stop(tmp_path):
    with small_disk(tmp_path / "disk", 4096) as disk:
        trainer = toy_trainer(config_on(disk / "run", "continue"), StopAfter(30))
        at_step(trainer, 1, lambda: fill(disk))
        with pytest.raises(SeirenesError, match="the disk refused") as ended, trainer.watch:
            trainer.run()
        assert ended.value.exit_code == 1
