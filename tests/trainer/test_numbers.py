"""Updates that are not finite are skipped, counted, kept and end the run in time; a wrong engine ends it before."""

import json
import math

import pytest
from toy_run import toy_config, toy_trainer

from megatron_seirenes.actor.sequences import TrainingSequence, UpdateReport
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import SeirenesError
from megatron_seirenes.observe.metrics import validate_row
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.trainer.numbers import FILES_KEPT, NonfiniteUpdates, keep_for_inspection, mismatch_fault
from megatron_seirenes.trainer.snapshot import complete_snapshots, read_state


def report(**values) -> UpdateReport:
    settled = {"loss": math.nan, "grad_norm": math.nan, "learning_rate": 1.0, "sums": {"tokens": 3.0}, "tokens": 3}
    return UpdateReport(**{**settled, "skipped": True, "suspects": ("1/q3/R1.0", "1/q3/R1.1"), **values})


def sequence(name: str) -> TrainingSequence:
    return TrainingSequence((1, 2), (3,), (-0.5,), math.nan, 1.0, name=name)


def spoil(trainer, *calls: int):
    """Makes these updates of the toy actor, counted from 1, come out as not finite."""
    actor = trainer.parts.actor
    original, made = actor.update, []

    def update(sequences, loss):
        made.append(len(sequences))
        return report(suspects=(sequences[0].name,)) if len(made) in calls else original(sequences, loss)

    actor.update = update


def faults_config(folder, **faults) -> Config:
    return Config.model_validate({**toy_config(folder).model_dump(), "faults": faults})


def test_a_spoilt_update_changes_nothing_and_is_counted_and_kept(tmp_path):
    trainer = toy_trainer(toy_config(tmp_path))
    spoil(trainer, 1)
    with trainer.watch:
        trainer.run()
    rows = read_metrics(trainer.directory.metrics)
    streams = ("clean", "adversary", "robust")
    skipped = [row[f"streams/{name}/skipped_nonfinite"] for row in rows for name in streams]
    assert sum(skipped) == 1
    for row in rows:
        validate_row(row)
    (kept,) = (tmp_path / "logs").glob("nonfinite-*.json")
    content = json.loads(kept.read_text())
    assert content["sequences"][0]["name"].split("/")[1].startswith("q") and math.isnan(content["loss"])
    for name, flush in (("clean", 4), ("adversary", 8), ("robust", 4)):
        sums = {
            key: sum(row[f"streams/{name}/{key}"] for row in rows)
            for key in ("accepted", "updates", "skipped_nonfinite", "evicted_stale", "evicted_overflow")
        }
        spent = flush * (sums["updates"] + sums["skipped_nonfinite"]) + sums["evicted_stale"] + sums["evicted_overflow"]
        assert sums["accepted"] == spent + rows[-1][f"streams/{name}/pending"]
    assert rows[-1]["policy_version"] == sum(row[f"streams/{name}/updates"] for row in rows for name in streams)


def test_too_many_in_a_row_stop_the_run_with_a_snapshot_and_names(tmp_path):
    config = faults_config(tmp_path, nonfinite_in_a_row=2)
    trainer = toy_trainer(config)
    spoil(trainer, 2, 3)
    with trainer.watch, pytest.raises(SeirenesError, match="2 updates in a row") as stopped:
        trainer.run()
    snapshot = complete_snapshots(trainer.directory.snapshots)[0]
    assert str(snapshot) in str(stopped.value) and "rollouts 1/q" in str(stopped.value)
    assert read_state(snapshot)["nonfinite_in_a_row"] == 0, "a run that goes on has all its tries again"
    resumed = toy_trainer(config, resume=True)
    with resumed.watch:
        assert "collection steps" in resumed.run()


def test_a_good_update_between_two_spoilt_ones_starts_the_count_anew():
    counter = NonfiniteUpdates(2)
    for _ in range(3):
        said = counter.skipped("clean", 4, report())
        counter.taken()
    assert counter.reason_to_stop() is None
    assert "update of clean in step 4" in said and "loss nan" in said and "1/q3/R1.0" in said


def test_only_suspects_are_kept_and_never_without_end(tmp_path):
    others = [sequence("1/q1/R1.0"), sequence("1/q3/R1.1")]
    path = keep_for_inspection(tmp_path, 1, "clean", 2, report(), others)
    assert path.name == "nonfinite-step-000001-clean-rank-2.json"
    assert [one["name"] for one in json.loads(path.read_text())["sequences"]] == ["1/q3/R1.1"]
    assert keep_for_inspection(tmp_path, 1, "clean", 2, report(), others[:1]) is None
    for number in range(FILES_KEPT):
        (tmp_path / f"nonfinite-{number}.json").touch()
    assert keep_for_inspection(tmp_path, 2, "clean", 2, report(), others) is None


@pytest.mark.parametrize(("mean", "limit", "wrong"), [(0.4, 0.5, False), (0.6, 0.5, True), (9.0, None, False)])
def test_the_limit_on_the_mismatch(mean, limit, wrong):
    row = {"step": 3, "mismatch/logprob_abs_mean": mean, "mismatch/logprob_abs_max": 2 * mean}
    assert (mismatch_fault(row, limit) is not None) == wrong


def test_a_mismatch_that_is_no_number_is_always_wrong():
    row = {"step": 3, "mismatch/logprob_abs_mean": math.nan, "mismatch/logprob_abs_max": math.nan}
    assert "step 3" in mismatch_fault(row, None)
    assert mismatch_fault({"step": 3, "mismatch/logprob_abs_mean": None}, 0.1) is None


@pytest.mark.parametrize("gap", [7.0, math.nan])
def test_an_engine_with_other_weights_stops_the_run_before_an_update(tmp_path, gap):
    trainer = toy_trainer(toy_config(tmp_path))
    actor, before = trainer.parts.actor, None
    original = actor.logprobs

    def logprobs(sequences):
        nonlocal before
        if trainer.cursor.step < 3:  # no periodic snapshot stands there
            return original(sequences)
        before = actor.weight
        scored = original(sequences)
        scored[0].logprobs = (gap,) * len(scored[0].logprobs)
        for one in scored[1:]:
            one.logprobs = tuple(value - gap for value in one.logprobs)
        return scored

    actor.logprobs = logprobs
    with trainer.watch, pytest.raises(SeirenesError, match=r"step 4.*Nothing was learned from it.*step-000003"):
        trainer.run()
    assert actor.weight == before
    assert len(read_metrics(trainer.directory.metrics)) == 3
    sound, never_spoilt = toy_trainer(toy_config(tmp_path), resume=True), toy_trainer(toy_config(tmp_path / "other"))
    for one in (sound, never_spoilt):
        with one.watch:
            one.run()
    assert sound.parts.sampler.state_dict() == never_spoilt.parts.sampler.state_dict(), "its questions are asked again"
    assert sound.parts.actor.weight == never_spoilt.parts.actor.weight
    assert len(read_metrics(sound.directory.metrics)) == 6
