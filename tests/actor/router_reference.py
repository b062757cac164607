"""The losses of a mixture's routers by their equations, on Hugging Face's model, one sequence after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from megatron_seirenes.actor.sequences import TrainingSequence


def router_losses(model: Any, sequences: Sequence[TrainingSequence], objective: Mapping[str, float]) -> Tensor:
    """Coefficient times loss, summed over layers; averages over the tokens of all `sequences` together."""
    logits = _router_logits(model, sequences)
    balances = torch.stack([_balance(one, model.config.num_experts_per_tok) for one in logits])
    zs = torch.stack([one.logsumexp(dim=-1).square().mean() for one in logits])
    return objective.get("router_balance", 0.0) * balances.sum() + objective.get("router_z", 0.0) * zs.sum()


def _router_logits(model: Any, sequences: Sequence[TrainingSequence]) -> list[Tensor]:
    """The logits of every router, [tokens, experts], over all inputs; each sequence alone."""
    found: dict[int, list[Tensor]] = {}

    def keep(layer: int) -> Callable[..., None]:
        def hook(gate: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
            found.setdefault(layer, []).append(inputs[0].reshape(-1, gate.weight.shape[1]) @ gate.weight.t())

        return hook

    hooks = [block.mlp.gate.register_forward_hook(keep(layer)) for layer, block in enumerate(model.model.layers)]
    for one in sequences:
        model(torch.tensor([[*one.prompt_ids, *one.response_ids[:-1]]]))
    for hook in hooks:
        hook.remove()
    return [torch.cat(parts) for parts in found.values()]


def _balance(logits: Tensor, chosen: int) -> Tensor:
    experts = logits.shape[1]
    picks = torch.zeros_like(logits).scatter(1, logits.topk(chosen).indices, 1.0)
    fraction = picks.mean(dim=0) / chosen
    return experts * (fraction * logits.softmax(dim=-1).mean(dim=0)).sum()
