"""Several ranks (threads over the toy world) decide, record and learn exactly as one does, also stopped and resumed."""

import copy

import pytest
from toy_ranks import run_ranks
from toy_run import StopAfter, toy_config, toy_trainer

from megatron_seirenes.errors import DataError, FirstRankFailed, StoppedBySignal
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.trainer.agreement import RanksDisagree, check_agreement
from megatron_seirenes.trainer.disk import DiskRefused
from megatron_seirenes.trainer.ranks import ALONE, Places, first_alone

TIMES = ("time/", "throughput/", "verifier/seconds")
LAYOUTS = {
    "two replicas, data parallel": Places(1, (0, 1)),
    "one replica, model parallel": Places(2, (0, 0)),
    "one replica, data parallel": Places(2, (0, 1)),
    "two replicas, model parallel": Places(1, (0, 0)),
    "three replicas, six questions": Places(1, (0, 1, 2)),
    "pipeline of two stages, replicas across": Places(2, (0, 1, 0, 1)),
}


def outcome(trainer) -> dict:
    """What a run leaves behind, times and the homes of tokens apart."""
    streams = copy.deepcopy(trainer.parts.streams.state_dict())
    for queue in streams["queues"].values():
        for group in queue["pending"]:
            del group["home"]
    return {"weight": trainer.parts.actor.weight, "streams": streams, "sampler": trainer.parts.sampler.state_dict()}


def written(trainer) -> dict:
    folder = trainer.directory
    rows = [
        {key: value for key, value in row.items() if not key.startswith(TIMES)} for row in read_metrics(folder.metrics)
    ]
    return {"rows": rows, "rollouts": {path.name: path.read_bytes() for path in sorted(folder.rollouts.iterdir())}}


def train(folder, places=None, stops=(), resume=False) -> list:
    """The trainers of all ranks after a run, or what they raised. `stops[r]`: how often rank r asks before it stops."""

    def program(ranks):
        stop = StopAfter(stops[ranks.rank] if ranks.rank < len(stops) else None)
        trainer = toy_trainer(toy_config(folder), stop, resume, ranks=ranks)
        with trainer.watch:
            trainer.run()
        return trainer

    return [program(ALONE)] if places is None else run_ranks(places, program)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    (trainer,) = train(tmp_path_factory.mktemp("alone"))
    return outcome(trainer), written(trainer)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_rank_ends_where_one_rank_does(tmp_path, alone, name):
    trainers = train(tmp_path, LAYOUTS[name])
    for trainer in trainers:
        assert outcome(trainer) == alone[0]
    assert written(trainers[0]) == alone[1]


def test_each_rollout_is_trained_on_by_one_data_rank(tmp_path):
    places = LAYOUTS["pipeline of two stages, replicas across"]
    trainers = train(tmp_path, places)
    flushes = list(zip(*(trainer.parts.actor.seen for trainer in trainers), strict=True))
    assert flushes
    for seen in flushes:
        first, second = (set(seen[places.learners(data_rank)[0]]) for data_rank in (0, 1))
        assert not first & second
        assert all(set(seen[rank]) == (first, second)[places.data_ranks[rank]] for rank in range(places.size))
        assert abs(len(first) - len(second)) <= max(len(first), len(second)) // 2 + 1


def test_nothing_moves_when_everyone_has_it(tmp_path):
    trainers = train(tmp_path, LAYOUTS["one replica, model parallel"])
    assert all(trainer.parts.ranks.moved == 0 for trainer in trainers)


@pytest.mark.parametrize("name", ["two replicas, data parallel", "pipeline of two stages, replicas across"])
@pytest.mark.parametrize("asks", [1, 4, 9, 17, 26, 38])
def test_a_stop_on_any_rank_stops_all_and_they_go_on_as_if_never_stopped(tmp_path, alone, name, asks):
    places = LAYOUTS[name]
    stopped = train(tmp_path, places, stops=[10**6] * (places.size - 1) + [asks])
    assert all(isinstance(error, StoppedBySignal) for error in stopped), stopped
    trainers = train(tmp_path, places, resume=True)
    assert outcome(trainers[-1]) == alone[0] and written(trainers[0]) == alone[1]


@pytest.mark.parametrize(
    "path",
    [
        ("two replicas, data parallel", None),
        (None, "two replicas, data parallel"),
        ("three replicas, six questions", "one replica, model parallel"),
        ("pipeline of two stages, replicas across", "three replicas, six questions"),
    ],
)
def test_a_run_goes_on_in_another_layout(tmp_path, alone, path):
    before, after = (LAYOUTS.get(name) for name in path)
    if before is None:
        with pytest.raises(StoppedBySignal):
            train(tmp_path, None, stops=[22])
    else:
        assert all(isinstance(e, StoppedBySignal) for e in train(tmp_path, before, stops=[22] * before.size))
    trainers = train(tmp_path, after, resume=True)
    assert outcome(trainers[-1]) == alone[0] and written(trainers[0]) == alone[1]


def test_a_rank_that_decides_otherwise_ends_the_run_with_both_sides_named(tmp_path):
    def program(ranks):
        trainer = toy_trainer(toy_config(tmp_path), ranks=ranks)
        if ranks.rank == 1:
            trainer.parts.sampler.observe("q3", True)
        with trainer.watch:
            trainer.run()

    for error in run_ranks(Places(1, (0, 1)), program):
        assert isinstance(error, RanksDisagree), error
        assert "ranks 0 and 1" in str(error) and "questions" in str(error)


def test_equal_decisions_pass_and_the_one_that_differs_is_shown():
    def program(ranks):
        check_agreement(ranks, "step 3", lambda: {"taken": ["a"], "row": {"x": 1}})
        check_agreement(ranks, "step 4", lambda: {"taken": ["a"] if ranks.rank < 2 else ["b"], "row": {}})

    for error in run_ranks(Places(1, (0, 1, 2)), program):
        assert 'step 4: ranks 0 and 2' in str(error) and 'rank 0 has ["a"], rank 2 has ["b"]' in str(error)


def test_what_rank_0_finds_wrong_ends_every_rank():
    def refuse():
        raise DataError("nothing there")

    first, second = run_ranks(Places(1, (0, 1)), lambda ranks: first_alone(ranks, refuse))
    assert isinstance(first, DataError) and isinstance(second, FirstRankFailed) and second.exit_code == 2
    assert run_ranks(Places(1, (0, 1)), lambda ranks: first_alone(ranks, lambda: "x")) == ["x", "x"]


def test_a_full_disk_on_one_rank_is_raised_on_all(tmp_path):
    def program(ranks):
        trainer = toy_trainer(toy_config(tmp_path), ranks=ranks)
        if ranks.rank == 1:
            trainer.payloads.save = _fail
        with trainer.watch:
            trainer.run()

    errors = run_ranks(Places(1, (0, 1)), program)
    assert all(isinstance(error, DiskRefused) and "disk full" in str(error) for error in errors), errors
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == []


def _fail(*arguments) -> None:
    raise OSError("disk full")
