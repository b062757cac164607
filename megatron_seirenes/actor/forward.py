"""Runs micro-batches through the model by Megatron-Core's schedules, whatever the layout.

The output layer is never applied as a whole: GPTModel's `output_processor` hands over the last hidden states, and
`score_responses` takes token log-probabilities from them chunk by chunk. Parameter names, tied embeddings and gradient
accumulation stay Megatron-Core's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from torch import Tensor

from megatron_seirenes.actor.batch import MicroBatch, filled_up, make_micro_batch
from megatron_seirenes.actor.context import ContextShare, combined
from megatron_seirenes.actor.logprobs import LogprobOptions, token_logprobs
from megatron_seirenes.actor.router_losses import average_router_losses

LossOf = Callable[[MicroBatch, Tensor], tuple[Tensor, Any]]


@dataclass(frozen=True, slots=True)
class MicroBatchSpan:
    """A micro-batch in seconds of the clock: from its forward to the next one's, or to the end of the pass.

    Without a pipeline that is its forward and, in training, its backward. On a GPU it is the time that launching took.
    Padding counts among the tokens.
    """

    training: bool
    tokens: int
    sequences: int
    start_seconds: float
    end_seconds: float


class Stopwatch:
    """Reports the span of each micro-batch of a pass."""

    def __init__(self, clock: Callable[[], float], report: Callable[[MicroBatchSpan], None]):
        self._clock = clock
        self._report = report
        self._running: tuple[MicroBatch, float] | None = None

    def lap(self, batch: MicroBatch | None, training: bool) -> None:
        """`batch` begins now, and the one before has ended; None ends the pass."""
        now = self._clock()
        if self._running is not None:
            before, start = self._running
            self._report(MicroBatchSpan(training, before.tokens.shape[1], len(before.members), start, now))
        self._running = None if batch is None else (batch, now)


def score_responses(
    *, hidden_states: Tensor, output_layer: Any, output_weight: Tensor | None, context: Any, **unused: Any
) -> Tensor:
    """The `output_processor`: log-probability and entropy of a micro-batch's targets, float32 [2, targets].

    `context` is the pair (MicroBatch, LogprobOptions). `hidden_states` is [tokens, 1, hidden_size], this rank's part
    of the tokens under sequence parallelism. Only the rows that predict a response token are looked at.
    """
    batch, options = context
    if output_layer.sequence_parallel:
        hidden = gather_from_sequence_parallel_region(hidden_states, tensor_parallel_output_grad=True)
    else:
        hidden = copy_to_tensor_model_parallel_region(hidden_states)
    weight = output_layer.weight if output_weight is None else output_weight
    rows = hidden.squeeze(1).index_select(0, batch.rows)
    if batch.slots is None:
        return torch.stack(token_logprobs(rows, weight, batch.targets, options))
    own = torch.stack(token_logprobs(rows, weight, batch.targets[batch.slots], options))
    return combined(own, batch.slots, len(batch.targets), parallel_state.get_context_parallel_group())


class Runner:
    """Forward, and forward with backward, over lists of micro-batches.

    Ranks that work in step must run as many micro-batches: shorter lists are filled up with empty ones. With
    `even_lengths` all micro-batches of a pass are padded to the tokens of the longest on any rank.
    """

    def __init__(
        self,
        options: LogprobOptions,
        alignment: int,
        device: torch.device,
        virtual_pipeline: int | None,
        context: ContextShare,
        even_lengths: bool = False,
        router_losses: bool = False,
    ):
        self.options = options
        self.alignment = alignment
        self.device = device
        self.context = context
        self.virtual_pipeline = virtual_pipeline
        self.even_lengths = even_lengths
        self.router_losses = router_losses
        self.stopwatch: Stopwatch | None = None

    @torch.no_grad()
    def scores(self, modules: Sequence[torch.nn.Module], batches: Sequence[MicroBatch]) -> list[Tensor]:
        """Log-probability and entropy, float32 [2, targets], for each of `batches`; on every pipeline stage."""
        filled = self._filled(batches)
        outputs = self._run(modules, filled, lambda batch, output: output, forward_only=True)
        return _from_last_stage(outputs, filled)[: len(batches)]

    def train(self, modules: Sequence[torch.nn.Module], batches: Sequence[MicroBatch], loss_of: LossOf) -> list[Any]:
        """Accumulates gradients of the summed losses into the modules' gradient buffers and synchronises them.

        `loss_of(batch, output)` gives the loss to be summed and anything else to be returned. The list holds that
        for each micro-batch on the last pipeline stage, and is empty on the others.
        """

        def summed(batch: MicroBatch, output: Tensor) -> tuple[Tensor, Tensor, Any]:
            # Three results in Megatron-Core's per-token mode: the loss is divided by nothing. The token count would
            # only be used to average in finalize_model_grads, which optimizer.py calls without it.
            loss, result = loss_of(batch, output) if batch.members else (output.sum() * 0.0, None)
            return loss, torch.zeros((), dtype=torch.int, device=self.device), result

        filled = self._filled(batches)
        if self.router_losses:
            average_router_losses(modules, filled)
        results = self._run(modules, filled, summed, forward_only=False)
        return [result for result in results if result is not None]

    def _run(
        self,
        modules: Sequence[torch.nn.Module],
        batches: Sequence[MicroBatch],
        finish: Callable[[MicroBatch, Tensor], Any],
        forward_only: bool,
    ) -> list[Any]:
        def step(batches_left: Iterator[MicroBatch], model: torch.nn.Module) -> tuple[Tensor, Callable[..., Any]]:
            batch = next(batches_left)
            if self.stopwatch is not None:
                self.stopwatch.lap(batch, training=not forward_only)
            output = model(
                input_ids=batch.tokens,
                position_ids=batch.positions,
                attention_mask=None,
                packed_seq_params=batch.packed,
                padding_mask=batch.padding if self.router_losses and not forward_only else None,
                output_processor=score_responses,
                output_processor_context=(batch, self.options),
            )
            return output, lambda result, **unused: finish(batch, result)

        longest = max(batch.tokens.shape[1] for batch in batches)
        several = len(modules) > 1
        results = get_forward_backward_func()(
            forward_step_func=step,
            data_iterator=[iter(batches) for _ in modules] if several else iter(batches),
            model=list(modules) if several else modules[0],
            num_microbatches=len(batches),
            seq_length=longest * self.context.size,
            micro_batch_size=1,
            forward_only=forward_only,
            collect_non_loss_data=forward_only,
        )
        if self.stopwatch is not None:
            self.stopwatch.lap(None, training=not forward_only)
        return results

    def _filled(self, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        count, longest = max(1, len(batches)), max((batch.tokens.shape[1] for batch in batches), default=0)
        if parallel_state.get_data_parallel_world_size() > 1:
            most = torch.tensor([count, longest], device=self.device)
            dist.all_reduce(most, op=dist.ReduceOp.MAX, group=parallel_state.get_data_parallel_group())
            count, longest = most.tolist()
        if self.virtual_pipeline is not None:  # the interleaved schedule wants a multiple of the pipeline size
            count += -count % parallel_state.get_pipeline_model_parallel_world_size()
        empty = [make_micro_batch((), (), self.alignment, self.device, self.context)] * (count - len(batches))
        if not self.even_lengths:
            return [*batches, *empty]
        longest = max([longest, *(batch.tokens.shape[1] for batch in empty)])
        return [filled_up(batch, longest, self.context) for batch in (*batches, *empty)]


def _from_last_stage(outputs: list[Tensor], batches: Sequence[MicroBatch]) -> list[Tensor]:
    """The last stage's outputs, on every stage of the pipeline."""
    if parallel_state.get_pipeline_model_parallel_world_size() == 1:
        return outputs
    sizes = [len(batch.targets) for batch in batches]
    device = batches[0].tokens.device
    joined = torch.cat(outputs, dim=1) if outputs else torch.empty((2, sum(sizes)), device=device)
    source = parallel_state.get_pipeline_model_parallel_last_rank()
    dist.broadcast(joined, src=source, group=parallel_state.get_pipeline_model_parallel_group())
    return list(joined.split(sizes, dim=1))
