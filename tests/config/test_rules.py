"""Rules that span keys: each breach gives its one line, and the nearest valid neighbour gives none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from megatron_seirenes.config.layers import deep_merge
from megatron_seirenes.config.loading import build_config
from megatron_seirenes.config.rules import training_faults
from megatron_seirenes.errors import ConfigError

DENSE = {
    "family": "qwen3",
    "tokenizer": "t",
    "layers": 4,
    "hidden": 64,
    "ffn_size": 96,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 32,
    "max_positions": 40_000,
}
MOE = {**DENSE, "family": "qwen3_moe", "experts": 8, "experts_per_token": 2, "expert_ffn_size": 32}


def dense(**changes: Any) -> dict[str, Any]:
    return {"model": {"new": {**DENSE, **changes}}}


def moe(**changes: Any) -> dict[str, Any]:
    return {"model": {"new": {**MOE, **changes}}}


def faults_of(*parts: dict[str, Any]) -> list[str]:
    data: dict[str, Any] = {}
    for part in parts:
        data = deep_merge(data, part)
    try:
        build_config(data)
    except ConfigError as error:
        return list(error.faults)
    return []


def parallel(**settings: Any) -> dict[str, Any]:
    return {"parallel": settings}


def stream(**settings: Any) -> dict[str, Any]:
    return {"streams": {"clean": settings}}


FILE = {"path": "p.jsonl"}

# What is wrong, the key that is named, a word of the reason; and a neighbour that is right.
CASES = [
    (
        [{"objective": {"correction": "masked"}, "rollout": {"behaviour_logprobs": "engine"}}],
        "objective.correction",
        "has no effect",
        [{"objective": {"correction": "masked"}}],
    ),
    (
        [{"game": {"stages": {"R1": {"samples": 1}}}}],
        "game.stages.R1.samples",
        "stream clean would never learn",
        [{"game": {"stages": {"R1": {"samples": 1}}}}, stream(enabled=False)],
    ),
    (
        [{"game": {"stages": {"R2": {"samples": 1}}, "adversary": "group_relative"}}],
        "game.stages.R2.samples",
        "stream adversary would never learn",
        [{"game": {"stages": {"R2": {"samples": 1}}}}],
    ),
    (
        [{"game": {"memory": {"max_age": 3}}, "streams": {"robust": {"enabled": False}}}],
        "game.memory.max_age",
        "feeds the stream robust",
        [{"game": {"memory": {"max_age": 3}}, "streams": {"adversary": {"enabled": False}}}],
    ),
    (
        [{"objective": {"overlong_penalty": 0.5, "overlong_cache": 20_000}}],
        "objective.overlong_cache",
        "16384",
        [{"objective": {"overlong_penalty": 0.5, "overlong_cache": 16_384}}],
    ),
    ([moe(), parallel(expert=3)], "parallel.expert", "8 experts", [moe(), parallel(expert=4)]),
    ([dense(), parallel(expert=2)], "parallel.expert", "dense", [dense(), parallel(expert=1)]),
    (
        [moe(), parallel(tensor=2)],
        "parallel.sequence_parallel",
        "must be true",
        [moe(), parallel(tensor=2, sequence_parallel=True)],
    ),
    (
        [moe(expert_ffn_size=32), parallel(expert_tensor=3)],
        "parallel.expert_tensor",
        "intermediate size 32",
        [moe(), parallel(expert_tensor=2)],
    ),
    ([dense(), parallel(tensor=4)], "parallel.tensor", "key-value heads (2)", [dense(), parallel(tensor=2)]),
    ([dense(ffn_size=97), parallel(tensor=2)], "parallel.tensor", "intermediate size (97)", [dense(ffn_size=98)]),
    ([dense(), {"rollout": {"tensor": 3}}], "rollout.tensor", "4 attention", [dense(), {"rollout": {"tensor": 4}}]),
    ([dense(), parallel(pipeline=3)], "parallel.pipeline", "4 layers", [dense(), parallel(pipeline=4)]),
    (
        [dense(layers=6), parallel(pipeline=2, virtual_pipeline=2)],
        "parallel.pipeline",
        "x 2 virtual",
        [dense(layers=8), parallel(pipeline=2, virtual_pipeline=2)],
    ),
    ([parallel(virtual_pipeline=2)], "parallel.virtual_pipeline", "above 1", [parallel(virtual_pipeline=1)]),
    ([parallel(sequence_parallel=True)], "parallel.sequence_parallel", "above 1", [parallel()]),
    ([stream(flush=9, capacity=8)], "streams.clean.capacity", "at least 9", [stream(flush=9, capacity=9)]),
    ([stream(max_flushes=8)], "streams.clean.max_flushes", "at most 4", [stream(max_flushes=8, max_lag=7)]),
    ([stream(capacity=127)], "streams.clean.capacity", "at least 128", [stream(capacity=128)]),
    (
        [{"game": {"name": "grpo"}}, stream(enabled=False)],
        "streams",
        "every stream of game grpo is off",
        [stream(enabled=False)],
    ),
    (
        [dense(max_positions=20_479)],
        "game.stages.R1.max_tokens",
        "context of 20479: at most 16383",
        [dense(max_positions=20_480)],
    ),
    (
        [{"game": {"stages": {"R2": {"max_tokens": 4_096}}}}],
        "game.stages.R2.max_tokens",
        "no room for the question",
        [{"game": {"stages": {"R2": {"max_tokens": 4_095}}}}],
    ),
    ([{"game": {"name": "gpro"}}], "game.name", "did you mean grpo?", [{"game": {"name": "grpo"}}]),
    (
        [{"game": {"stages": {"R4": {}}}}],
        "game.stages.R4",
        "not a stage of any known game",
        [{"game": {"name": "grpo", "stages": {"R3": {}}}}],
    ),
    ([{"streams": {"robsut": {}}}], "streams.robsut", "did you mean robust?", [{"streams": {"robust": {}}}]),
    ([{"roles": {"resoner": {}}}], "roles.resoner", "did you mean reasoner?", [{"roles": {"reasoner": {}}}]),
    ([dense(), {"model": {"path": "m"}}], "model.new", "model.path", [{"model": {"path": "m"}}]),
    ([dense(head_dim=48)], "model.new.head_dim", "one of 32, 64", [dense(head_dim=64)]),
    ([dense(heads=4, kv_heads=3)], "model.new.kv_heads", "does not divide", [dense(kv_heads=4)]),
    ([moe(hidden=48)], "model.new.hidden", "multiple of 32", [moe(hidden=96)]),
    ([moe(experts_per_token=9)], "model.new.experts_per_token", "more than the 8", [moe(experts_per_token=8)]),
    ([moe(experts=None)], "model.new.experts", "is missing", [moe()]),
    ([dense(expert_ffn_size=32)], "model.new.expert_ffn_size", "has no experts", [dense()]),
    (
        [{"precision": {"recipe": "delayed"}}],
        "precision.recipe",
        "without precision.fp8",
        [{"precision": {"recipe": "delayed", "fp8": "hybrid"}}],
    ),
    (
        [{"precision": {"fp8": "e4m3"}, "model": {"dtype": "float32"}}],
        "precision.fp8",
        "bfloat16",
        [{"precision": {"fp8": "e4m3"}}],
    ),
    (
        [{"rollout": {"max_batched_tokens": 255}}],
        "rollout.max_batched_tokens",
        "below rollout.max_sequences (256)",
        [{"rollout": {"max_batched_tokens": 256}}],
    ),
    ([{"problems": {"train": [FILE, {}]}}], "problems.train.1", "none is given", [{"problems": {"train": [FILE]}}]),
    (
        [{"problems": {"train": [{**FILE, "task": "t"}]}}],
        "problems.train.0",
        "path and task are given",
        [{"problems": {"train": [{"task": "t", "count": 5}]}}],
    ),
    ([{"problems": {"train": [{"task": "t"}]}}], "problems.train.0.count", "no end", [{"problems": {"train": [FILE]}}]),
    (
        [{"evaluation": {"benchmarks": {"b": {"problems": FILE, "distractors": {"kind": "file"}}}}}],
        "evaluation.benchmarks.b.distractors.path",
        "is missing",
        [{"evaluation": {"benchmarks": {"b": {"problems": FILE, "distractors": {"kind": "policy"}}}}}],
    ),
    (
        [dense(), {"evaluation": {"benchmarks": {"b": {"problems": FILE, "max_tokens": 35_905}}}}],
        "evaluation.benchmarks.b.max_tokens",
        "at most 35904",
        [dense(), {"evaluation": {"benchmarks": {"b": {"problems": FILE, "max_tokens": 35_904}}}}],
    ),
    (
        [{"warmup": {"phases": [{"records": "r", "steps": 3, "min_steps": 4}]}}],
        "warmup.phases.0.min_steps",
        "more than warmup.phases.0.steps (3)",
        [{"warmup": {"phases": [{"records": "r", "steps": 4, "min_steps": 4}]}}],
    ),
]


@pytest.mark.parametrize(("wrong", "key", "reason", "right"), CASES, ids=[f"{case[1]}-{case[2]}" for case in CASES])
def test_each_rule(wrong: list[dict], key: str, reason: str, right: list[dict]) -> None:
    faults = faults_of(*wrong)
    matching = [fault for fault in faults if fault.startswith(f"{key}: ") and reason in fault]
    assert len(matching) == 1, faults
    assert faults_of(*right) == []


def test_the_shape_is_read_from_a_folder_that_is_here(tmp_path: Path) -> None:
    hf_config = {
        "model_type": "qwen2",
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": 10,
        "max_position_embeddings": 30_000,
    }
    (tmp_path / "config.json").write_text(json.dumps(hf_config))
    model = {"model": {"path": str(tmp_path)}}
    assert faults_of(model) == []
    assert faults_of(model, parallel(pipeline=2)) == [
        "parallel.pipeline: 2 stages do not divide the model's 3 layers"
    ]
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (fault,) = faults_of(model)
    assert fault.startswith("model.path: ")
    assert "'bert'" in fault


def test_a_model_that_is_not_here_is_not_checked() -> None:
    assert faults_of({"model": {"path": "/nowhere/model"}}, parallel(pipeline=7, tensor=3)) == []


def test_what_only_training_needs() -> None:
    ready = {**dense(), "problems": {"train": [FILE]}}
    assert training_faults(build_config(ready), cuda=False, world_size=1) == []
    faults = training_faults(
        build_config({"rollout": {"top_p": 0.9}, "precision": {"fp8": "hybrid"}}), cuda=False, world_size=1
    )
    assert [fault.partition(":")[0] for fault in faults] == [
        "model",
        "problems.train",
        "rollout.top_p",
        "precision.fp8",
    ]
    fp8 = build_config({**ready, "precision": {"fp8": "hybrid"}})
    assert training_faults(fp8) == training_faults(fp8, cuda=True) == []


@pytest.mark.parametrize(
    ("settings", "world_size", "keys"),
    [
        ({"tensor": 2, "sequence_parallel": True, "expert": 8, "expert_tensor": 1}, 16, []),
        ({"tensor": 2, "sequence_parallel": True, "expert": 8, "expert_tensor": 1}, 12, ["parallel.expert"]),
        ({"tensor": 2, "sequence_parallel": True, "pipeline": 2}, 6, ["parallel.tensor", "parallel.expert"]),
        ({"context": 2}, 3, ["parallel.tensor"]),
        ({"pipeline": 2, "virtual_pipeline": 2}, 4, []),
    ],
)
def test_layouts_tile_the_processes(settings: dict[str, Any], world_size: int, keys: list[str]) -> None:
    config = build_config({**moe(), "problems": {"train": [FILE]}, "parallel": settings})
    faults = training_faults(config, world_size=world_size)
    assert [fault.partition(":")[0] for fault in faults] == keys
