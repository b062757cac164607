"""The load-balancing loss and the z-loss of a mixture's routers, as averages over all tokens of an update.

    balance:  coefficient * experts * sum_i f_i P_i     per layer; f_i is the part of the choices that fell on expert i
                                                        and P_i its mean probability (Switch Transformer, eq. 4)
    z:        coefficient * mean (log sum_i exp x_i)^2  per layer, of the router's logits x (ST-MoE, eq. 5)

Prompts and responses count alike, padding does not. f is that of a micro-batch, over all tensor and context ranks, so
the balance depends on how sequences were packed; the z-loss does not. Neither is part of the loss that an update
reports. Megatron-Core's own losses are left out: they multiply a rank's part by its number of tokens, which is the
average only where all ranks have as many, and a micro-batch of padding alone makes them NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, compute_routing_scores_for_aux_loss
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.utils import get_model_config
from torch import Tensor

from megatron_seirenes.actor.batch import MicroBatch
from megatron_seirenes.config.schema import ObjectiveSection


class RouterWithLosses(TopKRouter):
    """A router that adds the gradients of its losses wherever a training forward hands it a `padding_mask`."""

    def __init__(self, *args: Any, balance: float, z: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.balance = balance
        self.z = z

    def routing(self, logits: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Megatron-Core's: logits [tokens, 1, experts] to probabilities and choices, [tokens, experts].

        `padding_mask` (bool, True: padding) is [tokens, 1] of this tensor rank, or of all of them.
        """
        if padding_mask is not None and self.training and torch.is_grad_enabled():
            logits = MoEAuxLossAutoScaler.apply(logits, self._losses(logits.flatten(0, 1), padding_mask.flatten()))
        return super().routing(logits)

    def _losses(self, logits: Tensor, padding: Tensor) -> Tensor:
        """This rank's part of both losses, each the sum over a micro-batch's tokens of what is to be averaged."""
        if len(padding) > len(logits):  # later pipeline stages are given that of the whole sequence
            padding = padding.chunk(self.config.tensor_model_parallel_size)[
                parallel_state.get_tensor_model_parallel_rank()
            ]
        loss = logits.new_zeros(())
        if self.balance:
            loss = loss + self.balance * self._balance(logits, padding)
        if self.z:
            loss = loss + self.z * (logits.logsumexp(dim=-1).square() * ~padding).sum()
        return loss

    def _balance(self, logits: Tensor, padding: Tensor) -> Tensor:
        chosen, scores = compute_routing_scores_for_aux_loss(
            logits, self.topk, self.score_function, padding_mask=padding
        )
        counts = chosen.sum(dim=0)
        dist.all_reduce(counts, group=self.tp_cp_group)
        fractions = counts / counts.sum().clamp(min=1)
        return len(fractions) * (fractions * scores.sum(dim=0)).sum().to(logits.dtype)


def router_with_losses(section: ObjectiveSection) -> Callable[..., TopKRouter] | None:
    """What builds the routers of a mixture; None where no loss is wanted."""
    if not section.router_balance and not section.router_z:
        return None
    return partial(RouterWithLosses, balance=section.router_balance, z=section.router_z)


def average_router_losses(modules: Sequence[torch.nn.Module], batches: Sequence[MicroBatch]) -> None:
    """Makes the router losses of a pass over `batches` averages over its tokens on all ranks. Collective."""
    tokens = (~torch.cat([batch.padding for batch in batches], dim=1)).sum(dim=1).float()
    dist.all_reduce(tokens, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    get_model_config(modules[0]).moe_grad_scale_func = lambda: 1.0 / tokens.clamp(min=1)
