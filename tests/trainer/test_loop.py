"""The loop on a toy world: the order of Algorithm 1, the rows it writes, and going on exactly from any stop."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from toy_run import StopAfter, toy_config, toy_trainer

from megatron_seirenes.config.schema import EvaluationSection
from megatron_seirenes.errors import StoppedBySignal
from megatron_seirenes.observe.metrics import validate_row
from megatron_seirenes.observe.records import read_records
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.rollouts.scheduler import CollectionStopped

TIMES = ("time/", "throughput/", "verifier/seconds")


def timeless(row: dict) -> dict:
    return {key: value for key, value in row.items() if not key.startswith(TIMES)}


def run(trainer) -> str:
    with trainer.watch:
        return trainer.run()


def outcome(trainer) -> dict:
    """Everything a run leaves behind, times apart."""
    folder = trainer.directory
    return {
        "weight": trainer.parts.actor.weight,
        "rows": [timeless(row) for row in read_metrics(folder.metrics)],
        "rollouts": {path.name: path.read_bytes() for path in sorted(folder.rollouts.iterdir())},
        "streams": trainer.parts.streams.state_dict(),
        "sampler": trainer.parts.sampler.state_dict(),
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    trainer = toy_trainer(toy_config(tmp_path_factory.mktemp("whole")))
    reason = run(trainer)
    assert "6 collection steps" in reason
    return outcome(trainer), trainer.stop.seen


def test_every_row_is_whole_and_every_stream_is_updated(uninterrupted):
    rows = uninterrupted[0]["rows"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    for row in rows:
        validate_row(row)
    last = rows[-1]
    assert all(last[f"streams/{name}/updates_total"] > 0 for name in ("clean", "adversary", "robust"))
    assert last["policy_version"] == sum(last[f"streams/{n}/updates_total"] for n in ("clean", "adversary", "robust"))


def test_groups_end_trained_evicted_or_pending(uninterrupted):
    for name, flush in (("clean", 4), ("adversary", 8), ("robust", 4)):
        rows = uninterrupted[0]["rows"]
        total = {
            key: sum(row[f"streams/{name}/{key}"] for row in rows)
            for key in ("accepted", "evicted_stale", "evicted_overflow", "updates")
        }
        assert total["accepted"] == (
            flush * total["updates"]
            + total["evicted_stale"]
            + total["evicted_overflow"]
            + rows[-1][f"streams/{name}/pending"]
        )


def test_two_runs_are_the_same(tmp_path, uninterrupted):
    trainer = toy_trainer(toy_config(tmp_path))
    run(trainer)
    assert outcome(trainer) == uninterrupted[0]


def test_records_name_what_was_trained(uninterrupted, tmp_path):
    trainer = toy_trainer(toy_config(tmp_path, collection_steps=1))
    run(trainer)
    records = list(read_records(trainer.directory.rollouts / "step-000001.jsonl.gz"))
    assert {record["stage"] for record in records} == {"R1", "R2", "R3"}
    assert any(record["refused"] for record in records if record["stage"] == "R2")
    assert all(record["parent"] for record in records if record["stage"] == "R3")


@pytest.mark.parametrize("part", range(12))
def test_stopped_anywhere_and_gone_on_is_never_stopped(tmp_path, uninterrupted, part):
    whole, asks = uninterrupted
    stop = StopAfter(1 + part * asks // 12)
    config = toy_config(tmp_path)
    with pytest.raises(StoppedBySignal, match="saved"):
        run(toy_trainer(config, stop))
    trainer = toy_trainer(config, resume=True)
    run(trainer)
    assert outcome(trainer) == whole


def test_stopped_again_and_again_is_never_stopped(tmp_path, uninterrupted):
    config = toy_config(tmp_path)
    resume, stops = False, 0
    while True:
        trainer = toy_trainer(config, StopAfter(9 + 4 * stops), resume)
        try:
            run(trainer)
            break
        except StoppedBySignal:
            resume, stops = True, stops + 1
    assert stops > 4
    assert outcome(trainer) == uninterrupted[0]


def test_stopped_within_an_evaluation_it_is_made_later(tmp_path, uninterrupted):
    config = toy_config(tmp_path)
    config = config.model_copy(update={"evaluation": EvaluationSection(every=2)})
    asked = []

    def evaluate(step):
        asked.append(step)
        if asked == [2, 4]:
            raise CollectionStopped("told to")
        return {"evaluation/chains/avg@1": step / 10}

    for resume in (False, True):
        trainer = toy_trainer(config, resume=resume)
        trainer.parts = replace(trainer.parts, evaluate=evaluate)
        with trainer.watch, nullcontext() if resume else pytest.raises(StoppedBySignal, match="step-000003-next-3"):
            trainer.run()
    assert asked == [2, 4, 4, 6]
    done = outcome(trainer)
    assert [row.pop("evaluation/chains/avg@1", None) for row in done["rows"]] == [None, 0.2, None, 0.4, None, 0.6]
    assert done == uninterrupted[0]


def test_a_run_that_retires_every_question_ends_and_says_so(tmp_path):
    config = toy_config(tmp_path, collection_steps=1000)
    trainer = toy_trainer(config, problems=2)
    for problem in ("q0", "q1"):
        trainer.parts.sampler.observe(problem, True)
    assert run(trainer) == "every question is retired"


def test_grpo_runs_through_the_same_loop(tmp_path):
    trainer = toy_trainer(toy_config(tmp_path), game="grpo")
    run(trainer)
    row = read_metrics(trainer.directory.metrics)[-1]
    assert row["success/hinted"] is None and row["streams/clean/updates_total"] > 0
