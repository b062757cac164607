"""The actor: one policy held by Megatron-Core, that scores given tokens and learns from them.

    actor = Actor(architecture, config, world.backend)
    actor.load_hf(folder)
    actor.update(sequences, loss)

Every method is collective: all ranks call it, each data-parallel rank with its own sequences. Order of the input is
the order of the output. The same calls from the same state give the same bits on a CPU. torch is left as it was found:
Megatron-Core runs inside `backend.actor_scope()` only.

Refuses sequences without a prompt, and token ids that the engine could not have sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import Tensor

from megatron_seirenes.actor.batch import MicroBatch, check_sequences, make_micro_batches
from megatron_seirenes.actor.checkpoint import load_checkpoint, save_checkpoint
from megatron_seirenes.actor.context import ContextShare
from megatron_seirenes.actor.forward import MicroBatchSpan, Runner, Stopwatch
from megatron_seirenes.actor.logprobs import LogprobOptions
from megatron_seirenes.actor.model import build_modules, transformer_config
from megatron_seirenes.actor.optimizer import ActorOptimizer, wrap_data_parallel
from megatron_seirenes.actor.router_losses import router_with_losses
from megatron_seirenes.actor.sequences import ResponseLogprobs, Tokens, TrainingSequence, UpdateReport
from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.load import load_hf_folder
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.objectives.token_loss import LossSum, TokenBatch, TokenLoss


class Actor:
    """A policy under training. `modules` are this rank's model chunks, unwrapped: the bridge reads and writes them.

    Whoever writes weights into `modules` calls `weights_changed()` afterwards. `sampled_vocabulary` is the number of
    token ids that the engine may sample (default: all rows of the embedding): later ids have probability 0.
    """

    def __init__(
        self, architecture: Architecture, config: Config, backend: Backend, *, sampled_vocabulary: int | None = None
    ) -> None:
        self.architecture = architecture
        self.config = config
        self.backend = backend
        self.sampled_vocabulary = sampled_vocabulary or architecture.vocabulary
        with backend.actor_scope():
            transformer = transformer_config(architecture, config, backend)
            router = router_with_losses(config.objective) if architecture.experts else None
            self.modules = build_modules(architecture, transformer, router)
            for module in self.modules:
                module.to(backend.device)
            self._wrapped = wrap_data_parallel(self.modules, transformer, config)
            self._optimizer = ActorOptimizer(self._wrapped, config)
            self._runner = Runner(
                self._logprob_options(),
                alignment=config.parallel.tensor if transformer.sequence_parallel else 1,
                device=backend.device,
                virtual_pipeline=config.parallel.virtual_pipeline,
                context=ContextShare(parallel_state.get_context_parallel_rank(), config.parallel.context),
                even_lengths=transformer.moe_token_dispatcher_type == "allgather",
                router_losses=router is not None,
            )
        self._reference: list[Tensor] | None = None

    def report_micro_batches(self, clock: Callable[[], float], report: Callable[[MicroBatchSpan], None]) -> None:
        """From now on `report` is told when each micro-batch of this rank ran, by `clock`."""
        self._runner.stopwatch = Stopwatch(clock, report)

    @property
    def updates(self) -> int:
        """Optimizer steps taken since the weights were new; part of a checkpoint."""
        return self._optimizer.updates

    def load_hf(self, folder: Path) -> None:
        """Loads the weights of a Hugging Face folder; the optimizer's state stays as it is. Raises DataError."""
        with self.backend.actor_scope():
            load_hf_folder(self.modules, self.architecture, folder)
        self.weights_changed()

    def weights_changed(self) -> None:
        """Tells the optimizer that `modules` hold new weights: float32 master copies are taken from them."""
        with self.backend.actor_scope():
            self._optimizer.megatron.reload_model_params()

    def logprobs(self, sequences: Sequence[Tokens]) -> list[ResponseLogprobs]:
        """Log-probability of every response token at the rollout temperature, and the entropy there, without gradient.

        Raises ValueError for an empty prompt or a token id out of range.
        """
        batches = self._micro_batches(sequences)
        with self.backend.actor_scope():
            for module in self.modules:
                module.eval()
            outputs = self._runner.scores(self.modules, batches)
        results = [ResponseLogprobs((), ())] * len(sequences)
        for batch, output in zip(batches, outputs, strict=True):
            lengths = [len(sequences[index].response_ids) for index in batch.members]
            for index, values in zip(batch.members, output.cpu().split(lengths, dim=1), strict=True):
                logprobs, entropy = values.tolist()
                results[index] = ResponseLogprobs(tuple(logprobs), tuple(entropy))
        return results

    @torch.no_grad()
    def remember_reference(self) -> None:
        """Keeps a copy of this rank's weights, as they are now, for `reference_logprobs`."""
        self._reference = [parameter.detach().clone() for parameter in self._parameters()]

    def reference_logprobs(self, sequences: Sequence[Tokens]) -> list[ResponseLogprobs]:
        """`logprobs` under the remembered weights. Raises RuntimeError when none were remembered."""
        if self._reference is None:
            raise RuntimeError("no reference weights: call remember_reference() first")
        self._swap_reference()
        try:
            return self.logprobs(sequences)
        finally:
            self._swap_reference()

    def update(
        self, sequences: Sequence[TrainingSequence], loss: TokenLoss, learning_rate: float | None = None
    ) -> UpdateReport:
        """One optimizer step on the sum of `loss` over all response tokens of all ranks.

        `learning_rate` overrides the schedule of the configuration. Raises ValueError as `logprobs` does, and when
        log-probabilities are not one a response token.
        """
        _check_training(sequences)
        batches = self._micro_batches(sequences)
        rate = self._optimizer.next_rate() if learning_rate is None else learning_rate

        def loss_of(batch: MicroBatch, output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            chosen = [sequences[i] for i in batch.members]
            result: LossSum = loss(_token_batch(chosen, output, self._runner.options.entropy_gradient))
            return result.loss, {**result.sums, _LOSS: result.loss.detach()}

        with self.backend.actor_scope():
            for wrapped in self._wrapped:
                wrapped.train()
                wrapped.zero_grad_buffer()
            self._optimizer.megatron.zero_grad()
            results = self._runner.train(self._wrapped, batches, loss_of)
            sums = _sum_over_ranks(results)
            # A NaN log-probability under a clip bound has gradient zero: the loss is looked at before the optimizer.
            finite = _on_all_ranks(all(map(math.isfinite, sums.values())))
            norm, taken = self._optimizer.step(rate) if finite else (math.nan, False)
        tokens = _over_data_parallel(sum(len(sequence.response_ids) for sequence in sequences))
        suspects = () if taken else _gathered(_suspects(batches, results, sequences, everything=finite))
        return UpdateReport(sums.pop(_LOSS, 0.0), norm, rate, sums, tokens, not taken, suspects)

    def save(self, folder: Path) -> None:
        """Writes weights, optimizer and step count into `folder`, which is made when it is not there."""
        with self.backend.actor_scope():
            save_checkpoint(folder, self.modules, self._optimizer)

    def load(self, folder: Path) -> None:
        """Goes back to what `save` wrote: what is computed from here on has the same bits. Raises DataError."""
        with self.backend.actor_scope():
            load_checkpoint(folder, self.modules, self._optimizer)

    def _logprob_options(self) -> LogprobOptions:
        split = self.config.parallel.tensor > 1
        return LogprobOptions(
            chunk_tokens=self.config.actor.logprob_chunk_tokens,
            temperature=self.config.rollout.temperature,
            sampled_vocabulary=self.sampled_vocabulary,
            tensor_parallel_group=parallel_state.get_tensor_model_parallel_group() if split else None,
            entropy_gradient=self.config.objective.entropy_bonus > 0,
        )

    def _micro_batches(self, sequences: Sequence[Tokens]) -> list[MicroBatch]:
        check_sequences(sequences, self.architecture.vocabulary, self.sampled_vocabulary)
        budget = self.config.actor.micro_batch_tokens
        runner = self._runner
        return make_micro_batches(sequences, budget, runner.alignment, runner.device, runner.context)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for module in self.modules for parameter in module.parameters()]

    @torch.no_grad()
    def _swap_reference(self) -> None:
        """Exchanges current and remembered weights in place: parameters keep their addresses."""
        assert self._reference is not None
        for parameter, kept in zip(self._parameters(), self._reference, strict=True):
            current = parameter.detach().clone()
            parameter.copy_(kept)
            kept.copy_(current)


_LOSS = "\0loss"  # stands beside the loss function's own sums, under a name that none of them can have


def _check_training(sequences: Sequence[TrainingSequence]) -> None:
    for index, sequence in enumerate(sequences):
        expected = len(sequence.response_ids)
        for name in ("old_logprobs", "reference_logprobs", "behaviour_logprobs"):
            seen = len(getattr(sequence, name))
            if seen != expected and not (name != "old_logprobs" and seen == 0):
                raise ValueError(f"sequence {index}: {seen} {name} for {expected} response tokens")


def _token_batch(sequences: Sequence[TrainingSequence], output: Tensor, entropy_gradient: bool) -> TokenBatch:
    """`output` is [2, tokens]; per-sequence numbers are repeated for every token of the response.

    Entropy carries gradient with `entropy_gradient` alone (`LogprobOptions`).
    """
    repeats = torch.tensor([len(sequence.response_ids) for sequence in sequences], device=output.device)

    def floats(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=output.device)

    reference = [*chain.from_iterable(sequence.reference_logprobs for sequence in sequences)]
    behaviour = [*chain.from_iterable(sequence.behaviour_logprobs for sequence in sequences)]
    return TokenBatch(
        logprobs=output[0],
        entropy=output[1] if entropy_gradient else output[1].detach(),
        old_logprobs=floats([*chain.from_iterable(sequence.old_logprobs for sequence in sequences)]),
        advantages=floats([sequence.advantage for sequence in sequences]).repeat_interleave(repeats),
        weights=floats([sequence.weight for sequence in sequences]).repeat_interleave(repeats),
        reference_logprobs=floats(reference) if reference else None,
        behaviour_logprobs=floats(behaviour) if behaviour else None,
        segments=torch.arange(len(sequences), device=output.device).repeat_interleave(repeats),
    )


def _sum_over_ranks(results: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Sums of all micro-batches of all data-parallel ranks, the same on every rank, added in order of rank."""
    local = _added([{name: float(value) for name, value in result.items()} for result in results])
    if dist.get_world_size() == 1:
        return local
    group = parallel_state.get_data_parallel_group()
    parts: list[dict[str, float]] = [{}] * dist.get_world_size(group)
    dist.all_gather_object(parts, local, group=group)
    shared = [_added(parts)]
    source = parallel_state.get_pipeline_model_parallel_last_rank()
    dist.broadcast_object_list(shared, src=source, group=parallel_state.get_pipeline_model_parallel_group())
    return shared[0]


def _on_all_ranks(holds: bool) -> bool:
    """Whether it holds on every rank. Tensor-parallel ranks each compute the loss, and one alone may get it wrong."""
    if dist.get_world_size() == 1:
        return holds
    found = [holds] * dist.get_world_size()
    dist.all_gather_object(found, holds)
    return all(found)


def _suspects(
    batches: Sequence[MicroBatch],
    results: Sequence[Mapping[str, Tensor]],
    sequences: Sequence[TrainingSequence],
    everything: bool,
) -> list[str]:
    """The sequences of this rank's micro-batches with a value that is not finite; with `everything`, of all of them."""
    spoilt = [
        batch
        for batch, result in zip(batches, results, strict=False)  # results are the last pipeline stage's alone
        if everything or not all(math.isfinite(float(value)) for value in result.values())
    ]
    return [sequences[index].name for batch in spoilt for index in batch.members]


def _gathered(names: list[str]) -> tuple[str, ...]:
    """The names of all ranks, each once, in order of ranks."""
    if dist.get_world_size() == 1:
        return tuple(dict.fromkeys(names))
    parts: list[list[str]] = [[]] * dist.get_world_size()
    dist.all_gather_object(parts, names)
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def _added(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _over_data_parallel(count: int) -> int:
    if parallel_state.get_data_parallel_world_size() == 1:
        return count
    parts = [0] * parallel_state.get_data_parallel_world_size()
    dist.all_gather_object(parts, count, group=parallel_state.get_data_parallel_group())
    return sum(parts)
