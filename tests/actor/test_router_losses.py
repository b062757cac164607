"""Load-balancing and z-loss of the routers: their gradients are those of the equations on Hugging Face's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_hf
import torch
from actor_samples import training_sequences, weighted_likelihood
from router_reference import router_losses

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.objectives.token_loss import LossSum, TokenBatch

NAME = "qwen3_moe"
UNCLIPPED = {"gradient_clip": 1e6}


def nothing(batch: TokenBatch) -> LossSum:
    return LossSum(batch.logprobs.sum() * 0.0, {})


BOTH = {"router_balance": 0.3, "router_z": 0.2}


@pytest.mark.parametrize(
    ("objective", "budget", "sections"),
    [
        ({"router_balance": 0.3}, 1_000, {}),
        ({"router_z": 0.2}, 14, {}),
        (BOTH, 1_000, {}),
        pytest.param({"router_z": 0.2}, 14, {"parallel": {"expert_dispatcher": "allgather"}}, id="with padding"),
        (BOTH, 1_000, {"actor": {"recompute": "full"}}),
        (BOTH, 1_000, {"actor": {"recompute": "selective"}}),
    ],
)
def test_gradients_are_those_of_the_equations(
    objective: dict[str, float], budget: int, sections: dict[str, Any], make_actor: Callable[..., Actor]
) -> None:
    model, sequences = tiny_hf.make_model(NAME), training_sequences()
    router_losses(model, sequences, objective).backward()
    gradients = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in model.named_parameters()}
    expected = tiny_hf.in_megatron_layout(gradients, model.config)

    settings = {"micro_batch_tokens": budget, **sections.get("actor", {})}
    actor = make_actor(NAME, objective=objective, optimizer=UNCLIPPED, **sections | {"actor": settings})
    report = actor.update(sequences, nothing)
    assert report.loss == 0.0
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert largest > 1e-3
    for key, parameter in actor.modules[0].named_parameters():
        assert float((parameter.main_grad - expected[key]).abs().max()) <= 1e-5 * max(1.0, largest), key


def test_a_dense_model_has_no_routers_to_lose(make_actor: Callable[..., Actor]) -> None:
    norms = [
        make_actor("qwen3_tied", objective=objective).update(training_sequences(), weighted_likelihood).grad_norm
        for objective in ({}, BOTH)
    ]
    assert norms[0] == norms[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", None])
def test_the_router_dtype_changes_nothing_beyond_rounding(dtype: str | None, make_actor: Callable[..., Actor]) -> None:
    norms = [
        make_actor(NAME, precision={"router_dtype": kind}).update(training_sequences(), weighted_likelihood).grad_norm
        for kind in (dtype, "float32")
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
