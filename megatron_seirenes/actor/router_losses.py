"""The load-balancing loss and the z-loss of a mixture's routers, as averages over all tokens of an update.

Megatron-Core multiplies both by the number of a micro-batch's tokens and expects the gradient to be divided by the
number of all tokens in the end. Here gradients are summed and never divided (optimizer.py): the division is made here.

    balance:  coefficient * experts * sum_i f_i P_i     per layer; f_i is the part of the choices that fell on expert i
                                                        and P_i its mean probability (Switch Transformer, eq. 4)
    z:        coefficient * mean (log sum_i exp x_i)^2  per layer, of the router's logits x (ST-MoE, eq. 5)

The balance is that of a micro-batch (of all tensor and context ranks) and depends on how tokens were packed; the z-loss
does not. Prompts, responses and padding count alike. Neither loss is part of the loss that an update reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.utils import get_model_config

from megatron_seirenes.actor.batch import MicroBatch
from megatron_seirenes.config.schema import ObjectiveSection


def router_loss_fields(section: ObjectiveSection) -> dict[str, Any]:
    """Megatron-Core's fields for the coefficients; 0 leaves a loss out."""
    return {
        "moe_router_load_balancing_type": "aux_loss" if section.router_balance else "none",
        "moe_aux_loss_coeff": section.router_balance,
        "moe_z_loss_coeff": section.router_z or None,
    }


def average_router_losses(modules: Sequence[torch.nn.Module], batches: Sequence[MicroBatch]) -> None:
    """Makes the router losses of a pass over `batches` averages over its tokens on all ranks. Collective."""
    config = get_model_config(modules[0])
    if not config.moe_aux_loss_coeff and not config.moe_z_loss_coeff:
        return
    tokens = torch.tensor([float(sum(batch.tokens.numel() for batch in batches))], device=batches[0].tokens.device)
    dist.all_reduce(tokens, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    config.moe_grad_scale_func = lambda: 1.0 / tokens
