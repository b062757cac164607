"""Step times: against published runs, and as they must move when the machine or the layout changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from megatron_seirenes.bridge.plan_layouts import EngineLayout, TrainingLayout
from megatron_seirenes.errors import UsageError
from megatron_seirenes.planning.duration import Workload, duration_of, forward_flops
from megatron_seirenes.planning.machine import MACHINES, Rates
from megatron_seirenes.planning.memory import Layout
from megatron_seirenes.planning.published import RUNS, compare
from megatron_seirenes.planning.report import as_data, published_table, table
from megatron_seirenes.planning.search import estimates
from megatron_seirenes.planning.shapes import find_shape

H100 = MACHINES["h100"]
LAYOUT = Layout(TrainingLayout(32, tensor=2, expert=8, expert_tensor=1), EngineLayout(32, tensor=4))


def seconds(layout: Layout = LAYOUT, machine=H100, work: Workload | None = None, kv_bytes: float = 20e9):
    return duration_of(find_shape("qwen3-30b-a3b"), layout, kv_bytes, work or Workload(), machine)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.model)
def test_published_runs_are_met(run) -> None:
    assert abs(compare(run).error) < 0.10


def test_other_rates_miss_the_published_runs() -> None:
    """The test above is about the rates: twice as good ones are wrong."""
    assert compare(RUNS[1], Rates(expert_mfu=0.14)).error < -0.2


def test_flops_of_a_dense_model_by_hand() -> None:
    """2 x 7.07e9 (all but the embedding), and 2 x 28 layers x 3584 x length for causal attention."""
    flops = forward_flops(find_shape("qwen2.5-7b"), 1000)
    assert flops == pytest.approx(2 * (7.6156e9 - 152_064 * 3_584) + 2 * 28 * 3_584 * 1000, rel=1e-3)


def test_better_machines_are_faster_and_worse_layouts_slower() -> None:
    base = seconds()
    assert seconds(machine=replace(H100, memory_bandwidth=2 * H100.memory_bandwidth)).rollout < base.rollout
    assert seconds(machine=replace(H100, flops=2 * H100.flops)).training < base.training
    assert seconds(kv_bytes=2e9).rollout > base.rollout
    assert seconds(work=replace(Workload(), longest=32_768)).rollout > base.rollout
    deep = replace(LAYOUT, training=TrainingLayout(32, tensor=2, pipeline=16, expert=1))
    shallow = replace(LAYOUT, training=TrainingLayout(32, tensor=2, pipeline=2, expert=1))
    assert seconds(deep).scoring > seconds(shallow).scoring, "the bubble"
    wide = replace(LAYOUT, training=TrainingLayout(32, tensor=2, expert=32))
    assert seconds(wide).training > base.training, "exchanges between nodes cost more than within one"


def test_layouts_are_ranked_and_those_that_do_not_fit_say_why() -> None:
    architecture, work = find_shape("qwen3-30b-a3b"), Workload()
    found = estimates(architecture, 16, H100, work, top=2)
    fitting = [one for one in found if one.duration]
    assert fitting and [one.duration.total for one in fitting[:2]] == sorted(one.duration.total for one in fitting[:2])
    assert all(one.memory.total <= H100.memory and one.sequences >= 4 for one in fitting)
    assert all(one.plan.total == one.plan.bound.total and one.duration.sync > 0 for one in fitting[:2])
    refused = [one for one in found if not one.duration]
    assert refused and all(one.reason for one in refused)
    text = table(found, work, top=2)
    assert "tp" in text.splitlines()[1] and f"{len(fitting)} layouts fit" in text
    assert as_data(found[0])["seconds"]["total"] == found[0].duration.total


def test_eight_gpus_do_not_hold_the_30b_model_and_the_table_says_so() -> None:
    found = estimates(find_shape("qwen3-30b-a3b"), 8, H100, top=1)
    assert "no layout fits" in table(found, Workload(), top=1)


def test_the_comparison_states_every_error() -> None:
    assert published_table().count("%") == len(RUNS)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a folder nor a known shape"):
        find_shape("qwen9")
