"""A checkpoint in another layout: the same weights, the same moments of AdamW, and the same weights a step later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_hf
import torch
from megatron.core.dist_checkpointing import load_plain_tensors
from torchrun import launch

from megatron_seirenes.device.backend import Backend

pytestmark = pytest.mark.slow

DENSE, MOE = "qwen3_tied", "qwen3_moe"
TENSOR = {"tensor": 2, "sequence_parallel": True}
ZERO = {"distributed_optimizer": True}


def case(name: str, parallel: dict[str, Any], loads: str = "", model: str = MOE) -> dict[str, Any]:
    dense = parallel.get("tensor", 1) * parallel.get("pipeline", 1) * parallel.get("context", 1)
    return {"name": name, "model": model, "parallel": parallel, "loads": loads, "dense": dense}


ON_ONE = [case("one", {}), case("one, distributed", ZERO)]
ON_TWO = [
    case("expert 2", {"expert": 2}),
    case("expert 2 -> data 2", {}, "expert 2"),
    case("expert 2 -> tensor 2", TENSOR | {"expert_tensor": 2}, "expert 2"),
    case("expert 2, distributed", {"expert": 2} | ZERO),
    case("expert 2 -> data 2, distributed", ZERO, "expert 2, distributed"),
    case("expert 2 -> tensor 2, distributed", TENSOR | {"expert_tensor": 2} | ZERO, "expert 2, distributed"),
    case("one -> expert 2", {"expert": 2}, "one"),
    case("one -> expert 2, distributed", {"expert": 2} | ZERO, "one, distributed"),
    case("tensor 2", TENSOR, model=DENSE),
    case("tensor 2, distributed", TENSOR | ZERO, model=DENSE),
    case("pipeline 2", {"pipeline": 2}, model=DENSE),
    case("pipeline 2, distributed", {"pipeline": 2} | ZERO, model=DENSE),
    case("pipeline 2 -> the same, distributed", {"pipeline": 2} | ZERO, "pipeline 2, distributed", DENSE),
]
BACK_ON_ONE = [
    case("expert 2 -> one", {}, "expert 2"),
    case("expert 2 -> one, distributed", ZERO, "expert 2, distributed"),
    case("tensor 2 -> one", {}, "tensor 2", DENSE),
    case("tensor 2 -> one, distributed", ZERO, "tensor 2, distributed", DENSE),
    case("pipeline 2 -> one", {}, "pipeline 2", DENSE),
    case("pipeline 2 -> one, distributed", ZERO, "pipeline 2, distributed", DENSE),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("relayout")
    for name in (DENSE, MOE):
        tiny_hf.save_model(tiny_hf.make_model(name), root / name)
    for ranks, cases in ((1, ON_ONE), (2, ON_TWO), (1, BACK_ON_ONE)):
        described = root / "cases.json"
        described.write_text(json.dumps([one | {"data": ranks // one["dense"]} for one in cases]), encoding="utf-8")
        launch(Path(__file__).with_name("relayout_program.py"), ranks, root, described)
    return root


LOADED = [one for one in ON_TWO + BACK_ON_ONE if one["loads"]]


@pytest.mark.parametrize("name", [one["name"] for one in LOADED])
def test_weights_moments_and_the_next_step_are_those_of_the_layout_that_saved(seen: Path, name: str) -> None:
    loads = next(one["loads"] for one in LOADED if one["name"] == name)
    saved, loaded = (torch.load(seen / f"{file}.pt") for file in (loads, name))
    assert loaded["updates"] == saved["updates"] == 2
    for kind in ("weights", "exp_avg", "exp_avg_sq"):
        if kind in loaded:
            assert loaded[kind].keys() == saved[kind].keys()
            assert all(torch.equal(loaded[kind][key], saved[kind][key]) for key in saved[kind]), kind
    moved = largest(saved["after"], saved["weights"])
    assert moved > 1e-3
    assert largest(loaded["after"], saved["after"]) < 1e-5, "moments or steps were not taken over"


@pytest.mark.parametrize("name", [one["name"] for one in LOADED])
def test_what_is_saved_anew_has_the_same_bits(seen: Path, name: str, backend: Backend) -> None:
    """Weights, master weights and both moments; of a distributed optimizer, too, whose state no parameter has whole."""
    loads = next(one["loads"] for one in LOADED if one["name"] == name)
    with backend.actor_scope():
        saved, anew = (load_plain_tensors(str(seen / f"{file}.checkpoint")) for file in (loads, name))
    assert anew.keys() == saved.keys() and anew["updates"] == saved["updates"]
    tensors = {key for key, value in saved.items() if torch.is_tensor(value)}
    assert len([key for key in tensors if "exp_avg" in key]) >= 20
    for key in tensors:
        rows = min(len(anew[key]), len(saved[key]))  # vocabularies are padded to the tensor-parallel size
        assert rows >= min(len(saved[key]), tiny_hf.VOCABULARY), key
        assert torch.equal(anew[key][:rows], saved[key][:rows]), key


def test_one_step_without_the_moments_would_have_been_seen(seen: Path) -> None:
    one, two = (torch.load(seen / f"{file}.pt") for file in ("one", "expert 2"))
    assert largest(one["after"], two["after"]) < 1e-5
    assert max(float(tensor.abs().max()) for tensor in two["exp_avg"].values()) > 1e-3


def largest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max(float((one[key] - other[key]).abs().max()) for key in one)
