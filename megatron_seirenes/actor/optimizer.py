"""Megatron-Core's gradient buffers and optimizer, with the learning-rate schedule of a run.

Gradients are summed, never averaged: a loss here is a sum over tokens whose weights already hold every average
(objectives/token_loss.py). Megatron-Core would divide by micro-batches, by data-parallel ranks, or by tokens; its
`calculate_per_token_loss` mode leaves out the first two (loss of three results, scaling factor 1 in the gradient
buffers, no context-parallel factor), and `finalize_gradients` leaves out the third.

Hyper-parameters are written into the parameter groups before every step, so a resumed run follows its configuration
and not the checkpoint's. As is usual, biases and norm weights are not decayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32
from megatron.core.transformer.transformer_config import TransformerConfig

from megatron_seirenes.config.schema import Config, OptimizerSection


def learning_rate(section: OptimizerSection, updates: int) -> float:
    """The rate of the update after `updates` steps: constant, after a linear rise over `warmup_steps`."""
    if updates >= section.warmup_steps:
        return section.lr
    return section.lr * (updates + 1) / section.warmup_steps


def wrap_data_parallel(
    modules: Sequence[torch.nn.Module], transformer: TransformerConfig, config: Config
) -> list[DistributedDataParallel]:
    """Gives every module its gradient buffer and makes the schedules finish gradients with `finalize_gradients`."""
    buffers = DistributedDataParallelConfig(
        grad_reduce_in_fp32=config.precision.gradient_reduce_in_float32,
        use_distributed_optimizer=config.parallel.distributed_optimizer,
    )
    transformer.finalize_model_grads_func = finalize_gradients
    return [
        DistributedDataParallel(transformer, buffers, module, disable_bucketing=index > 0)
        for index, module in enumerate(modules)
    ]


def finalize_gradients(modules: list[torch.nn.Module], num_tokens: torch.Tensor | None, **options: Any) -> None:
    """Megatron-Core's `finalize_model_grads` without its division by the number of tokens."""
    finalize_model_grads(modules, None, **options)


class ActorOptimizer:
    """AdamW with clipping, float32 master weights where the model is bfloat16, and a count of the steps taken."""

    def __init__(self, wrapped: Sequence[DistributedDataParallel], config: Config) -> None:
        self.section = config.optimizer
        self.updates = 0
        bfloat16 = config.model.dtype == "bfloat16"
        # The rate here is never used. Saved parameter groups are matched by it, and a run may resume under another.
        self.megatron = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam",
                lr=1.0,
                weight_decay=self.section.weight_decay,
                adam_beta1=self.section.beta1,
                adam_beta2=self.section.beta2,
                adam_eps=self.section.epsilon,
                clip_grad=self.section.gradient_clip,
                bf16=bfloat16,
                params_dtype=torch.bfloat16 if bfloat16 else torch.float32,
                use_distributed_optimizer=config.parallel.distributed_optimizer,
                optimizer_cpu_offload=config.actor.cpu_offload_optimizer,
                optimizer_offload_fraction=1.0 if config.actor.cpu_offload_optimizer else 0.0,
            ),
            list(wrapped),
        )

    def next_rate(self) -> float:
        return learning_rate(self.section, self.updates)

    @torch.no_grad()
    def step(self, rate: float) -> tuple[float, bool]:
        """Clips and steps; returns the gradient norm before clipping and whether the step was taken.

        A gradient that is not finite changes nothing, on any rank: the norm is over all of them.
        """
        self.megatron.prepare_grads()
        norm = float(self.megatron.get_grad_norm())
        if not math.isfinite(norm):
            return norm, False
        self._write_hyperparameters(rate)
        for part in self.megatron.chained_optimizers:
            if part.get_parameters():
                clip_grad_by_total_norm_fp32(part.get_parameters(), self.section.gradient_clip, norm)
        self.megatron.step_with_ready_grads()
        self.updates += 1
        return norm, True

    def _write_hyperparameters(self, rate: float) -> None:
        for group in self.megatron.param_groups:
            group["lr"] = rate
            group["weight_decay"] = self.section.weight_decay * group["wd_mult"]
            group["betas"] = (self.section.beta1, self.section.beta2)
            group["eps"] = self.section.epsilon
