"""The real loop on 2 and 4 ranks, in every layout that is offered: the same questions, rollouts and losses as on one.

The ranks of a run that decide differently end it, so a run that ends well has decided alike everywhere. Rollouts may in
principle differ from one rank's where rounding (another batch, another order of sums: 1e-6 in a log-probability) turns
a draw; over these few steps none does.
"""

from __future__ import annotations

import pytest
from tiny_world import DENSE, MODEL
from worlds import ALONE, STEPS, World, make_quickstart_world, make_world

pytestmark = pytest.mark.slow

DISTRIBUTED = "data 2, distributed optimizer"
TENSOR = ["parallel.tensor=2", "parallel.sequence_parallel=true"]
ON_TWO = {
    "data 2": [],
    DISTRIBUTED: ["parallel.distributed_optimizer=true"],
    "data 2, engine tensor 2": ["rollout.tensor=2"],
    "tensor 2, engine tensor 2": [*TENSOR, "rollout.tensor=2"],
    "tensor 2, two replicas": TENSOR,
    "expert 2": ["parallel.expert=2"],
    "pipeline 2": ["parallel.pipeline=2"],
    "context 2": ["parallel.context=2"],
}
ON_FOUR = {
    "tensor 2 x data 2": [*TENSOR, "rollout.tensor=2"],
    "pipeline 2 x expert 2": ["parallel.pipeline=2", "parallel.expert=2"],
    "tensor 2 x expert 2": [*TENSOR, "parallel.expert=2", "parallel.expert_tensor=1"],
}
OBJECTIVE = [
    "objective.reference_kl=0.1",
    "objective.kl_estimator=k2",
    "objective.kl_unbiased=true",
    "objective.ratio=sequence",
    "objective.entropy_bonus=0.01",
    "objective.correction=truncated",
    "objective.correction_level=sequence",
    "objective.overlong_filter=true",
    "optimizer.lr=1.0e-4",
]
"""Every part of an objective that the default leaves out; the reference is kept by each rank for its own weights."""
WITH_OBJECTIVE = ("tensor 2, two replicas", "expert 2", "pipeline 2", "context 2")
DENSE_ON_TWO = ("data 2", "tensor 2, engine tensor 2", "tensor 2, two replicas", "pipeline 2", "context 2")
DENSE_ON_FOUR = ("tensor 2 x data 2",)
QUICKSTART_ON_TWO = ("data 2", "tensor 2, engine tensor 2", "expert 2", "pipeline 2", "context 2")
QUICKSTART_ON_FOUR = ("tensor 2 x data 2", "pipeline 2 x expert 2")
INTERLEAVED = {"pipeline 2 of 2 chunks": ["parallel.pipeline=2", "parallel.virtual_pipeline=2"]}
THEN_TWO = [
    ("tensor 2, engine tensor 2", "data 2"),
    ("pipeline 2", "tensor 2, two replicas"),
    ("expert 2", "data 2"),
    ("data 2", "data 2, engine tensor 2"),  # two rollout replicas become one
]
"""Runs that are made in the first layout and go on for another step in the second."""
THEN_ONE = ("tensor 2, engine tensor 2", "expert 2", "pipeline 2", "context 2", "data 2", DISTRIBUTED)
"""Those that go on in one process."""


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("experts"), MODEL)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("dense"), DENSE)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("deep"), {**DENSE, "layers": 4})


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_quickstart_world(tmp_path_factory.mktemp("quickstart"))


def check_layouts(world: World, processes: int, layouts: dict[str, list[str]]) -> None:
    world.launch(processes, layouts)
    for name in layouts:
        world.check_same(name)


def test_two_ranks_learn_what_one_does_and_go_on_in_another_layout(experts: World) -> None:
    check_layouts(experts, 2, ON_TWO)
    assert experts.waiting("data 2") > 0, "groups wait across the change of layout"
    experts.goes_on(2, {(before, after): ON_TWO[after] for before, after in THEN_TWO})
    # The kind of optimizer must stay.
    experts.goes_on(1, {(before, ALONE): ON_TWO[before] if before == DISTRIBUTED else [] for before in THEN_ONE})


def test_four_ranks_learn_what_one_does(experts: World) -> None:
    check_layouts(experts, 4, ON_FOUR)


def test_two_ranks_train_a_dense_policy_as_one_does(dense: World) -> None:
    check_layouts(dense, 2, {name: ON_TWO[name] for name in DENSE_ON_TWO})
    dense.goes_on(1, {(before, ALONE): [] for before in DENSE_ON_TWO})


def test_four_ranks_train_a_dense_policy_as_one_does(dense: World) -> None:
    check_layouts(dense, 4, {name: ON_FOUR[name] for name in DENSE_ON_FOUR})


def test_every_part_of_an_objective_is_the_same_on_two_ranks(experts: World) -> None:
    experts.launch(1, {"objective": OBJECTIVE})
    row, plain = (experts.rows(name)[STEPS - 1] for name in ("objective", ALONE))
    assert row["reference_kl/robust"] > 0 and row["sequence_correction_mean/robust"] > 0
    assert row["loss/robust"] != plain["loss/robust"]
    layouts = {f"{name}, objective": [*ON_TWO[name], *OBJECTIVE] for name in WITH_OBJECTIVE}
    experts.launch(2, layouts)
    for name in layouts:
        experts.check_same(name, expected="objective")


def test_an_interleaved_pipeline_trains_as_one_process_does_and_goes_on_there(deep: World) -> None:
    check_layouts(deep, 2, INTERLEAVED)
    deep.goes_on(1, {(name, ALONE): [] for name in INTERLEAVED})


@pytest.mark.timeout(3600)
def test_the_quickstart_is_the_same_on_two_and_four_ranks(quickstart: World) -> None:
    assert quickstart.rows(ALONE)[0]["success/clean"] > 0.2, "it is warmed up"
    check_layouts(quickstart, 2, {name: ON_TWO[name] for name in QUICKSTART_ON_TWO})
    check_layouts(quickstart, 4, {name: ON_FOUR[name] for name in QUICKSTART_ON_FOUR})
