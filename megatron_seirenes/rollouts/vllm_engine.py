"""The engine protocol answered by vLLM 0.32, in this process, on CUDA or a CPU.

vLLM runs under `external_launcher`: every rank of the already initialised torch.distributed world makes one
`VLLMEngine`, blocks of `rollout.tensor` ranks form a replica, and the ranks of a replica must make the same calls in
the same order. Nothing is sent between replicas.

Invariants:
  * the reported log-probabilities are those of the distribution that was drawn from: temperature, top-p and the
    vocabulary mask applied (natural logarithm, float32), so they equal an actor's over logits / temperature when top-p
    is 1;
  * the stop token, when one ends a response, is its last id and has its log-probability;
  * tokens depend on weights, requests and their order only, and no global state of the process is left changed;
  * after `load_weights` no cached prefix of older weights remains, and parameters keep their addresses.

Refused: weights with a missing, an unknown or a doubled tensor (DataError), weights while requests run (a bug of the
caller, RuntimeError), scoring given tokens (MissingComponentError).

The CUDA branch (memory fraction, CUDA graphs, sleep mode) uses the same code; it was not yet run on a GPU.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch

from megatron_seirenes.architecture import Architecture
from megatron_seirenes.bridge.weight_map import build_weight_map
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.device.vllm_cpu import expert_reload_mended, repack_tied_head, shared_memory_avoided
from megatron_seirenes.errors import DataError, MissingComponentError
from megatron_seirenes.records import FinishReason, Request
from megatron_seirenes.rollouts.engine import Completion
from megatron_seirenes.rollouts.vllm_process import (
    prepare_environment,
    process_state_kept,
    release_groups,
    torch_generator_kept,
)
from megatron_seirenes.rollouts.vllm_settings import engine_arguments, sampling_arguments

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput

FINISH_REASONS: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}
"""vLLM's reasons; whatever else it says is an abort."""

_OPEN: WeakSet[VLLMEngine] = WeakSet()
"""The engines of this process that share vLLM's process groups; the last one to close releases them."""


class VLLMEngine:
    """One policy held by vLLM. `folder` is a Hugging Face model folder whose weights it starts with.

    `stop_ids` end a response; ids at or above `sampled_vocabulary` are never drawn (None: every row of the embedding
    may be). `max_length` bounds prompt and response together and defaults to the model's context.
    """

    def __init__(
        self,
        folder: str | Path,
        config: Config,
        *,
        architecture: Architecture,
        stop_ids: Sequence[int],
        sampled_vocabulary: int | None,
        backend: Backend,
        max_length: int | None = None,
    ):
        self.policy_version = 0
        self.architecture = architecture
        self.backend = backend
        self.stop_ids = tuple(stop_ids)
        self._engine: Any = None
        self._order: dict[str, int] = {}
        self._submitted = 0
        arguments = engine_arguments(
            folder,
            config,
            architecture,
            on_cuda=backend.is_cuda,
            max_length=max_length or architecture.max_positions,
        )
        masked = sampled_vocabulary is not None and sampled_vocabulary < architecture.vocabulary
        with process_state_kept(backend.device):
            prepare_environment(backend.is_cuda)
            arguments |= _vocabulary_mask(sampled_vocabulary) if masked else {}
            self._engine, self._parameters = _start(arguments, backend.is_cuda)
        _OPEN.add(self)

    # -- generation

    def submit(self, request: Request) -> None:
        """Queues a request. Raises MissingComponentError for one that asks to score given tokens."""
        if request.given_ids is not None:
            raise MissingComponentError(
                f"request {request.id}: the vLLM engine cannot score given tokens yet; let the actor score them"
            )
        self._order[request.id] = self._submitted
        self._submitted += 1
        parameters = self._parameters(**sampling_arguments(request.sampling, request.seed, self.stop_ids))
        self._engine.add_request(request.id, {"prompt_token_ids": list(request.prompt_ids)}, parameters)

    def step(self) -> Sequence[Completion]:
        """One token for every running sequence; what finished, in order of submission."""
        with torch_generator_kept():
            outputs = self._engine.step()
        completions = [_completion(output) for output in outputs if output.finished]
        completions.sort(key=lambda completion: self._order.pop(completion.request_id))
        return completions

    def has_unfinished(self) -> bool:
        return self._engine.has_unfinished_requests()

    def drawn_tokens(self) -> int:
        """Response tokens that the requests which have not finished hold so far, preempted ones included."""
        requests = self._engine.engine_core.engine_core.scheduler.requests.values()
        return sum(request.num_output_tokens for request in requests)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Drops requests; those unknown or already finished are ignored."""
        known = [key for key in request_ids if self._order.pop(key, None) is not None]
        self._engine.abort_request(known)

    # -- weights and memory

    def load_weights(self, tensors: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> None:
        """Replaces every weight in place; the tensors are only read, and not kept.

        Raises RuntimeError while requests run, DataError when a tensor is unknown, doubled, missing or of the wrong
        shape; after a DataError the engine is of no use and can only be closed.
        """
        if self.has_unfinished():
            raise RuntimeError("weights cannot be replaced while requests run")
        with process_state_kept(self.backend.device):
            self._engine.collective_rpc(_reload, args=(self._checked(tensors), self.architecture, self.backend.is_cuda))
        self.backend.synchronize()
        self._forget_prefixes()
        self.policy_version = policy_version

    def sleep(self) -> None:
        """On CUDA moves the weights to the host and gives the KV cache back; nothing to do on a CPU."""
        if self.backend.is_cuda:
            self.backend.synchronize()
            self._engine.sleep(level=1)

    def wake(self) -> None:
        """Undoes `sleep`."""
        if self.backend.is_cuda:
            self._engine.wake_up()
            self.backend.synchronize()

    def close(self) -> None:
        """Ends the engine and frees its memory. The torch.distributed world stays as it is."""
        if self._engine is None:
            return
        _shut_down(self._engine)
        self._engine = None
        _OPEN.discard(self)
        gc.unfreeze()
        gc.collect()
        if not _OPEN:
            release_groups()

    def _forget_prefixes(self) -> None:
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept cached prefixes of the old weights although no request runs")

    def _checked(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        expected = build_weight_map(self.architecture).tensors
        return check_tensors(tensors, {name: entry.shape for name, entry in expected.items()})


def check_tensors(
    tensors: Iterable[tuple[str, torch.Tensor]], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors as they come, each name of `shapes` once with its shape. Raises DataError.

    vLLM loads what it is given: a missing expert would silently keep uninitialised memory.
    """
    missing = dict(shapes)
    for name, tensor in tensors:
        shape = missing.pop(name, None)
        if shape is None:
            known = "came twice" if name in shapes else "is not a tensor of this model"
            raise DataError(f"weights for the engine: {name} {known}")
        if tuple(tensor.shape) != shape:
            raise DataError(f"weights for the engine: {name} has shape {tuple(tensor.shape)}, expected {shape}")
        yield name, tensor
    if missing:
        raise DataError(
            f"weights for the engine: {len(missing)} tensors are missing, the first is {next(iter(missing))}"
        )


def _start(arguments: dict[str, Any], on_cuda: bool) -> tuple[Any, Any]:
    """A vLLM engine, and a maker of its sampling parameters."""
    try:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import EngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.llm_engine import LLMEngine
    except ImportError as error:
        raise MissingComponentError(
            f"vLLM cannot be imported ({error}); `seirenes doctor` says how to get it"
        ) from error
    with nullcontext() if on_cuda else shared_memory_avoided():
        engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    return engine, partial(SamplingParams, output_kind=RequestOutputKind.FINAL_ONLY)


def _shut_down(engine: Any) -> None:
    """What vLLM's own shutdown does, except for destroying the torch.distributed world, which is not its to destroy."""
    client = engine.engine_core
    client._finalizer.detach()
    core = client.engine_core
    core.structured_output_manager.clear_backend()
    core.model_executor.shutdown()
    core.scheduler.shutdown()


def _vocabulary_mask(sampled_vocabulary: int | None) -> dict[str, Any]:
    from megatron_seirenes.rollouts.vocabulary_mask import KEY, VocabularyMask

    return {"logits_processors": [VocabularyMask], "additional_config": {KEY: sampled_vocabulary}}


def _completion(output: RequestOutput) -> Completion:
    answer = output.outputs[0]
    drawn = answer.logprobs  # vLLM's FlatLogprobs: with `logprobs=0` one entry a position, that of the drawn token
    reason = FINISH_REASONS.get(answer.finish_reason, "abort")
    return Completion(output.request_id, tuple(answer.token_ids), tuple(drawn.logprobs), reason)


def _reload(
    worker: Any, tensors: Iterator[tuple[str, torch.Tensor]], architecture: Architecture, on_cuda: bool
) -> None:
    """Runs inside vLLM's worker: replaces the weights, with the CPU's two faults mended."""
    with nullcontext() if on_cuda else expert_reload_mended():
        worker.reload_weights(weights_iterator=tensors, is_checkpoint_format=True)
    if not on_cuda:
        repack_tied_head(worker.model_runner.get_model(), architecture.tied_embeddings)
