"""What is measured, shown and refused; one real layout of two ranks, and one that cannot run."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from megatron_seirenes.benchmark.cases import Result, Work, all_layouts, known_peak, median, overrides_of, spread
from megatron_seirenes.benchmark.launch import measure_all
from megatron_seirenes.benchmark.report import as_csv, plot, table
from megatron_seirenes.errors import UsageError
from megatron_seirenes.planning.shapes import find_shape

SECONDS = {"rollout": 4.0, "scoring": 1.0, "training": 4.0, "sync": 1.0, "step": 12.0}
GOOD = Result("tensor=2", 2, "NVIDIA H100 80GB HBM3", None, SECONDS, 10**9, 960, 989e12, 989e12, 5_000_000)
BAD = Result("context=2", 2, reason="MissingComponentError: parallel.context is 2 | not built")


def test_figures_of_a_row() -> None:
    assert GOOD.rate("rollout") == 960 / 4 / 2 and GOOD.rate("sync") is None
    assert GOOD.mfu == pytest.approx(1 / 4 / 2)
    row = table([BAD, GOOD]).splitlines()[2]
    assert row == "| tensor=2 | 120 | 480 | 120 | 40 | 40 | 10 | 40 | 10 | 1.000 | 5.0 | 1.00 | 12.5 |"


def test_a_failed_layout_is_a_row_with_its_reason() -> None:
    assert "| context=2 | failed: MissingComponentError: parallel.context is 2 \\| not built |" in table([GOOD, BAD])
    rows = list(csv.DictReader(io.StringIO(as_csv([GOOD, BAD]))))
    assert rows[1]["reason"] == BAD.reason and rows[0]["reason"] == ""
    assert rows[1]["step_seconds"] == "" and rows[0]["step_seconds"] == "12.0"
    picture = plot([GOOD, BAD])
    ElementTree.fromstring(picture)
    assert "tensor=2" in picture and "context=2" not in picture


def test_layouts_become_overrides() -> None:
    assert overrides_of("tensor=2,rollout=4") == ["parallel.tensor=2", "rollout.tensor=4"]
    assert overrides_of("") == []
    with pytest.raises(UsageError, match="'tensor' is not key=value"):
        overrides_of("tensor")


def test_all_layouts_of_some_devices() -> None:
    dense = all_layouts(find_shape("qwen3-4b"), 2)
    assert (
        "rollout=1" in dense
        and "tensor=2,sequence_parallel=true,rollout=2" in dense
        and "pipeline=2,rollout=1" in dense
    )
    experts = all_layouts(find_shape("qwen3-30b-a3b"), 8)
    assert "tensor=2,expert=8,sequence_parallel=true,expert_tensor=1,rollout=8" in experts
    assert len(set(experts)) == len(experts)


def test_peaks_are_known_for_known_gpus_only() -> None:
    assert known_peak("NVIDIA H100 80GB HBM3") == 989e12 and known_peak("CPU") is None


@given(st.integers(0, 50), st.integers(1, 9))
def test_work_is_spread_once_and_evenly(count: int, parts: int) -> None:
    runs = list(spread(count, parts))
    assert [number for run in runs for number in run] == list(range(count))
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_the_median() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0 and median([4.0, 1.0, 2.0, 3.0]) == 2.5


@pytest.mark.slow
def test_two_ranks_are_measured_and_a_layout_that_cannot_run_says_why(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    config = AutoConfig.for_model("qwen3", **shape, **heads, tie_word_embeddings=True)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    file = tmp_path / "run.yaml"
    file.write_text(
        f"model: {{path: {tmp_path / 'model'}, dtype: float32}}\n"
        "rollout: {kv_cache_bytes: 67108864, max_prompt_tokens: 128}\n"
        "game: {stages: {R1: {max_tokens: 64}, R2: {max_tokens: 32}, R3: {max_tokens: 64}}}\n"
    )
    work = Work(sequences=4, prompt_tokens=8, response_tokens=8, repeats=1)
    good, bad = measure_all(file, [], ["tensor=2,rollout=2", "expert=2"], 2, work)
    assert good.reason is None and good.tokens == 32 and good.sync_bytes == 0 and good.peak_bytes > 0
    assert all(value > 0 for value in good.seconds.values())
    assert bad.reason is not None and "parallel.expert" in bad.reason and bad.seconds is None
