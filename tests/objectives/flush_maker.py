"""Flushes of random groups, and their tokens as the actor would hand them to a loss."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from megatron_seirenes.objectives.token_loss import TokenBatch
from megatron_seirenes.records import Birth, Group, Request, Rollout, Sampling


def make_group(name: str, problem: str, step: int, lengths: Sequence[int], advantages: Sequence[float]) -> Group:
    rollouts = tuple(
        Rollout(
            request=Request(
                id=f"{name}/{index}",
                problem_id=problem,
                stage="R3",
                path=(index,),
                role="reasoner",
                policy="shared",
                prompt_ids=(1,),
                sampling=Sampling(max_tokens=16),
                seed=0,
            ),
            response_ids=tuple(range(length)),
            behaviour_logprobs=(-1.0,) * length,
            finish_reason="stop",
            policy_version=0,
            text="",
        )
        for index, length in enumerate(lengths)
    )
    return Group(
        id=name,
        problem_id=problem,
        stream="robust",
        stage="R3",
        rollouts=rollouts,
        rewards=tuple(advantages),
        advantages=tuple(advantages),
        has_signal=True,
        birth=Birth(step, 0, {"robust": 0}),
    )


def make_flush(seed: int) -> list[Group]:
    """Two to five groups of one to four rollouts each, on up to two questions in up to two steps."""
    rng = random.Random(seed)
    groups = []
    for index in range(rng.randint(2, 5)):
        size = rng.randint(1, 4)
        lengths = [rng.randint(1, 6) for _ in range(size)]
        advantages = [rng.choice([-1.5, -0.5, 0.0, 0.7, 1.2]) for _ in range(size)]
        groups.append(make_group(f"g{index}", f"q{rng.randint(0, 1)}", rng.randint(1, 2), lengths, advantages))
    return groups


def token_values(groups: Sequence[Group], weights: Sequence[Sequence[float]], seed: int) -> dict[str, list[float]]:
    """Per token of the flush, in order: log-probabilities (random), advantage and weight."""
    rng = random.Random(seed)
    values: dict[str, list[float]] = {key: [] for key in ("new", "old", "reference", "advantage", "weight", "entropy")}
    for group, group_weights in zip(groups, weights, strict=True):
        for rollout, advantage, weight in zip(group.rollouts, group.advantages, group_weights, strict=True):
            for _ in rollout.response_ids:
                values["new"].append(rng.uniform(-3, -0.05))
                values["old"].append(values["new"][-1] + rng.choice([0.0, rng.uniform(-0.8, 0.8)]))
                values["reference"].append(values["new"][-1] + rng.uniform(-0.5, 0.5))
                values["advantage"].append(advantage)
                values["weight"].append(weight)
                values["entropy"].append(rng.uniform(0, 2))
    return values


def token_batch(values: dict[str, list[float]], logprobs: torch.Tensor, chosen: Sequence[int]) -> TokenBatch:
    """The tokens with these indices as one micro-batch."""

    def pick(key: str) -> torch.Tensor:
        return torch.tensor([values[key][index] for index in chosen], dtype=logprobs.dtype)

    return TokenBatch(
        logprobs=logprobs[list(chosen)],
        old_logprobs=pick("old"),
        advantages=pick("advantage"),
        weights=pick("weight"),
        entropy=pick("entropy"),
        reference_logprobs=pick("reference"),
    )
