"""Going on: another model, game or data set is refused unless meant; everything else may change and is written down."""

import pytest
import yaml
from toy_run import StopAfter, toy_config, toy_trainer

from megatron_seirenes.config.loading import dump_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import StoppedBySignal, UsageError
from megatron_seirenes.observe.writer import MetricsWriter, read_metrics
from megatron_seirenes.trainer.resume import (
    adapted_state,
    check_accepted,
    check_optimizer_kind,
    claim,
    config_changes,
    differences,
    log_changes,
    open_snapshot,
    put_aside,
    snapshot_to_resume,
)
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.snapshot import Cursor, complete_snapshots, newest_sound_snapshot

FINGERPRINT = {"game": {"name": "seirenes"}}


def changed(config: Config, **sections) -> Config:
    return Config.model_validate({**config.model_dump(), **sections})


class StopBeforeStream:
    """Tells its trainer to stop before the turn of a stream, by index."""

    def __init__(self, index):
        self.index, self.trainer = index, None

    @property
    def requested(self) -> bool:
        return self.trainer.cursor.next_stream == self.index


def stopped_run(folder, stop=None, **run):
    """A toy run stopped by a signal; returns its configuration and newest snapshot."""
    config = toy_config(folder, **run)
    stop = stop or StopAfter(20)
    trainer = stop.trainer = toy_trainer(config, stop)
    with trainer.watch, pytest.raises(StoppedBySignal):
        trainer.run()
    return config, newest_sound_snapshot(trainer.directory.snapshots, print)


def finished_run(folder, **run):
    config = toy_config(folder, **run)
    trainer = toy_trainer(config)
    with trainer.watch:
        trainer.run()
    return config, trainer.directory


def test_another_game_or_data_set_is_refused_with_both_values(tmp_path):
    _, snapshot = stopped_run(tmp_path)
    other = {"game": {"name": "grpo"}, "problems": {"count": "7"}}
    with pytest.raises(UsageError, match="another game and another problems") as refused:
        open_snapshot(snapshot, other, ())
    assert "name: seirenes -> grpo" in str(refused.value) and "--accept game --accept problems" in str(refused.value)
    with pytest.raises(UsageError, match="another problems; use"):
        open_snapshot(snapshot, other, {"game"})
    accepted = open_snapshot(snapshot, other, {"game", "problems"})
    assert set(accepted.differences) == {"game", "problems"}


def test_the_same_run_has_no_differences(tmp_path):
    _, snapshot = stopped_run(tmp_path)
    assert open_snapshot(snapshot, FINGERPRINT, ()).differences == {}
    assert differences({}, {"model": {}}) == {}


def test_only_known_differences_can_be_accepted():
    assert check_accepted(["model", "model"]) == {"model"}
    with pytest.raises(UsageError, match="--accept: optimizer: expected model, game, problems"):
        check_accepted(["optimizer"])


def test_a_run_goes_on_with_other_questions(tmp_path):
    config, directory = finished_run(tmp_path, collection_steps=2)
    snapshot = newest_sound_snapshot(directory.snapshots, print)
    trainer = toy_trainer(changed(config, run={"dir": str(tmp_path), "collection_steps": 4}), problems=9)
    resumed = open_snapshot(snapshot, FINGERPRINT | {"problems": {"count": "9"}}, {"problems"})
    trainer.restore(snapshot, adapted_state(resumed, trainer.parts.game, trainer.parts.sampler))
    trainer.watch.go_on_after(trainer.cursor.step, trainer.spent)
    with trainer.watch:
        trainer.run()
    assert [row["step"] for row in read_metrics(directory.metrics)] == [1, 2, 3, 4]
    assert trainer.parts.sampler.ids == {f"q{i}" for i in range(9)}


def test_a_run_goes_on_as_another_game_without_the_groups_of_the_old_one(tmp_path):
    config, directory = finished_run(tmp_path, collection_steps=2)
    snapshot = newest_sound_snapshot(directory.snapshots, print)
    trainer = toy_trainer(config, game="grpo")
    resumed = open_snapshot(snapshot, {"game": {"name": "grpo"}}, {"game"})
    state = adapted_state(resumed, trainer.parts.game, trainer.parts.sampler)
    trainer.load_state_dict(state)
    assert trainer.parts.streams.pending("clean") == ()
    assert trainer.parts.streams.update_counts() == {"clean": resumed.state["streams"]["updates"]["clean"]}


def test_another_game_cannot_finish_a_step_that_is_under_way(tmp_path):
    _, snapshot = stopped_run(tmp_path, stop=StopBeforeStream(1))
    assert snapshot.name == "step-000000-next-1"
    trainer = toy_trainer(toy_config(tmp_path), game="grpo")
    resumed = open_snapshot(snapshot, {"game": {"name": "grpo"}}, {"game"})
    with pytest.raises(UsageError, match="inside a collection step"):
        adapted_state(resumed, trainer.parts.game, trainer.parts.sampler)


def test_what_changed_is_said_and_kept(tmp_path):
    config, snapshot = stopped_run(tmp_path)
    now = changed(config, optimizer={"lr": 2e-6}, evaluation={"every": 5})
    lines = log_changes(RunDirectory.of(config), open_snapshot(snapshot, FINGERPRINT, ()), now)
    assert lines == ["optimizer.lr: 1.0e-06 -> 2.0e-06", "evaluation.every: 0 -> 5"]
    kept = (tmp_path / "logs" / "changes.log").read_text().splitlines()
    assert kept == [f"{snapshot.name}: {line}" for line in lines]


def test_a_configuration_read_back_is_unchanged(tmp_path):
    config = changed(toy_config(tmp_path), problems={"per_step": 6, "train": [{"task": "x", "count": 3}]})
    assert config_changes(yaml.safe_load(dump_config(config)), config.model_dump(mode="json")) == []


def test_later_snapshots_and_half_written_ones_are_put_aside(tmp_path):
    _, directory = finished_run(tmp_path)
    newest = complete_snapshots(directory.snapshots)[0]
    (directory.snapshots / ".step-000009.partial" / "actor").mkdir(parents=True)
    said: list[str] = []
    put_aside(directory.snapshots, Cursor(4), said.append)
    assert sorted(path.name for path in directory.snapshots.iterdir()) == ["step-000004", f"{newest.name}.aside"]
    assert newest.name in said[0]
    assert complete_snapshots(directory.snapshots) == [directory.snapshots / "step-000004"]


def test_a_run_without_a_snapshot_starts_over_and_another_configuration_is_refused(tmp_path):
    config = toy_config(tmp_path)
    directory = RunDirectory.of(config)
    directory.create()
    assert claim(directory, config, None, "auto") is None
    with MetricsWriter(directory.metrics) as writer:
        writer.append({"step": 1})
    with pytest.raises(UsageError, match="already holds a run"):
        claim(directory, config, None, "never")
    with pytest.raises(UsageError, match="already holds a run"):
        claim(directory, changed(config, rollout={"temperature": 0.5}), None, "auto")
    again = claim(directory, changed(config, optimizer={"lr": 1e-5}), None, "auto")
    assert "starts over" in again and "1 steps" in again


def test_a_run_whose_snapshots_are_all_broken_does_not_start_over(tmp_path):
    _, directory = finished_run(tmp_path)
    for path in complete_snapshots(directory.snapshots):
        (path / "state.json.gz").write_bytes(b"")
    said: list[str] = []
    with pytest.raises(UsageError, match=r"every snapshot of .* is broken"):
        snapshot_to_resume(directory, "auto", said.append)
    assert len(said) == 2
    with pytest.raises(UsageError, match=r"--resume: .* state\.json\.gz"):
        snapshot_to_resume(directory, str(directory.snapshots / "step-000006"), print)
    with pytest.raises(UsageError, match="--resume: nowhere"):
        snapshot_to_resume(directory, "nowhere", print)


def test_the_other_kind_of_optimizer_is_refused_and_the_right_one_named(tmp_path):
    config = toy_config(tmp_path)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    check_optimizer_kind(tmp_path, config)
    distributed = changed(config, parallel={"distributed_optimizer": True})
    with pytest.raises(UsageError, match=r"made with parallel\.distributed_optimizer=false"):
        check_optimizer_kind(tmp_path, distributed)
