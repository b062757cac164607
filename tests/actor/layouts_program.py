"""Run by layout_table.py under torchrun: actors in many layouts, each compared with the single-process reference.

Every rank compares what it computed; the largest difference over all ranks is what counts. Rank 0 writes it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from actor_samples import averaged_sequences, weighted_likelihood
from layout_cases import UNMARKED_NORMS, WRONG_WEIGHT, Case
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.mappings import (
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
)
from torch import Tensor
from torchrun import free_port

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.batch import MicroBatch, filled_up, make_micro_batches
from megatron_seirenes.actor.context import ContextShare
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.gather import hf_tensors
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import World, start_distributed, stop_distributed

CLIP = 0.1


def configuration(
    parallel: Mapping[str, Any], objective: Mapping[str, float] | None = None, budget: int = 14
) -> Config:
    return Config.model_validate(
        {
            "model": {"dtype": "float32"},
            "parallel": parallel,
            "objective": dict(objective or {}),
            "actor": {"micro_batch_tokens": budget, "logprob_chunk_tokens": 5},
            "optimizer": {"lr": 1e-2, "epsilon": 1e-3, "gradient_clip": CLIP},
        }
    )


def whole_logits(
    *, hidden_states: Tensor, output_layer: Any, output_weight: Tensor | None, context: MicroBatch, **unused: Any
) -> Tensor:
    """An `output_processor`: logits of all words, float32 [targets, vocabulary], from all tensor and context ranks."""
    if output_layer.sequence_parallel:
        hidden_states = gather_from_sequence_parallel_region(hidden_states)
    rows = hidden_states.squeeze(1).index_select(0, context.rows)
    weight = output_layer.weight if output_weight is None else output_weight
    logits = gather_from_tensor_model_parallel_region(rows @ weight.t())
    if context.slots is None:
        return logits
    whole = logits.new_zeros((len(context.targets), logits.shape[1]))
    whole[context.slots] = logits
    dist.all_reduce(whole, group=parallel_state.get_context_parallel_group())
    return whole


@torch.no_grad()
def response_logits(actor: Actor) -> dict[int, Tensor]:
    """Logits of every sequence's response tokens by its index, on the last pipeline stage; empty on the others."""
    sequences, parallel = averaged_sequences(), actor.config.parallel
    alignment = parallel.tensor if parallel.sequence_parallel else 1
    share = ContextShare(parallel_state.get_context_parallel_rank(), parallel.context)
    budget = actor.config.actor.micro_batch_tokens
    batches = make_micro_batches(sequences, budget, alignment, actor.backend.device, share)
    longest = max(batch.tokens.shape[1] for batch in batches)
    if parallel.expert_dispatcher == "allgather":
        batches = [filled_up(batch, longest, share) for batch in batches]

    def step(left: Any, model: torch.nn.Module) -> tuple[Tensor, Any]:
        batch = next(left)
        output = model(
            input_ids=batch.tokens,
            position_ids=batch.positions,
            attention_mask=None,
            packed_seq_params=batch.packed,
            output_processor=whole_logits,
            output_processor_context=batch,
        )
        return output, lambda result, **unused: result

    with actor.backend.actor_scope():
        outputs = get_forward_backward_func()(
            forward_step_func=step,
            data_iterator=[iter(batches) for _ in actor.modules],
            model=[module.eval() for module in actor.modules],
            num_microbatches=len(batches),
            seq_length=longest * share.size,
            micro_batch_size=1,
            forward_only=True,
            collect_non_loss_data=True,
        )
    found: dict[int, Tensor] = {}
    for batch, output in zip(batches, outputs, strict=False):
        lengths = [len(sequences[index].response_ids) for index in batch.members]
        found |= zip(batch.members, output.split(lengths), strict=True)
    return found


def plant(actor: Actor, fault: str) -> None:
    """Breaks one weight of rank 1, or the marks of every rank: ranks that mark differently would wait for ever."""
    parameters = [parameter for module in actor.modules for parameter in module.parameters()]
    if fault == WRONG_WEIGHT and dist.get_rank() == 1:
        last = [parameter for parameter in parameters if parameter.dim() > 1][-1]
        last.data[0, 0] += 1e-1
    if fault == UNMARKED_NORMS:
        for parameter in parameters:
            if parameter.dim() == 1:
                parameter.sequence_parallel = False


def differences(case: Case, folder: Path, reference: Mapping[str, Any], world: World) -> dict[str, float]:
    """The largest absolute difference of each kind, over all elements, on this rank."""
    architecture = read_architecture(folder)
    actor = Actor(architecture, configuration(case.parallel, case.objective, case.budget), world.backend)
    actor.load_hf(folder)
    plant(actor, case.fault)
    sequences = averaged_sequences()
    logits, scores = response_logits(actor), actor.logprobs(sequences)
    report = actor.update(sequences[world.data_rank :: case.data], weighted_likelihood)
    assert report.grad_norm > CLIP, "the step must be a clipped one"
    seen = {
        "logits": _largest((logits[index], reference["logits"][index]) for index in logits),
        "logprobs": _largest(zip(map(_logprobs, scores), reference["logprobs"], strict=True)),
        "loss": abs(report.loss - reference["loss"]),
        "grad_norm": abs(report.grad_norm - reference["grad_norm"]),
        "weights": _difference(actor, reference["weights"]),
    }
    if not case.parallel.get("distributed_optimizer"):  # which leaves each rank the summed gradient of its part alone
        clipped_by = CLIP / (report.grad_norm + 1e-6)
        for parameter in (one for module in actor.modules for one in module.parameters()):
            parameter.data.copy_(parameter.main_grad / clipped_by)
        seen["gradients"] = _difference(actor, reference["gradients"])
    let_go(actor)
    return seen


def let_go(actor: Actor) -> None:
    """Expert dispatchers keep tensors of the last pass, and with their graph the whole model, beyond its end."""
    parts = (part for module in actor.modules for part in module.modules())
    for dispatcher in filter(None, (getattr(part, "token_dispatcher", None) for part in parts)):
        for name, value in list(vars(dispatcher).items()):
            if isinstance(value, Tensor):
                setattr(dispatcher, name, None)


def _logprobs(scores: Any) -> Tensor:
    return torch.tensor([scores.logprobs, scores.entropy])


def _difference(actor: Actor, expected: Mapping[str, Tensor]) -> float:
    seen = {name: tensor.clone() for name, tensor in hf_tensors(actor.modules, actor.architecture)}
    assert seen.keys() == expected.keys(), seen.keys() ^ expected.keys()
    return _largest((seen[name], expected[name]) for name in expected)


def _largest(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    return max((float((seen[..., : one.shape[-1]] - one).abs().max()) for seen, one in pairs), default=0.0)


def over_all_ranks(seen: Mapping[str, float]) -> dict[str, float]:
    parts: list[dict[str, float]] = [{}] * dist.get_world_size()
    dist.all_gather_object(parts, dict(seen))
    return {name: max(part[name] for part in parts) for name in seen}


def leave_world() -> None:
    """Ends a world and makes ready for the next, which has a store of its own: groups of one name would meet in one."""
    port = [free_port()]
    dist.broadcast_object_list(port)
    gc.collect()  # models that lie about hold their groups, and these their threads
    stop_distributed()
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": str(port[0])}


def main(root: Path, cases: Sequence[Case]) -> None:
    found = []
    for case in cases:
        world = start_distributed(configuration(case.parallel).parallel)
        reference = torch.load(root / f"{case.reference}.pt")
        found.append(over_all_ranks(differences(case, root / case.model, reference, world)))
        leave_world()
    if world.rank == 0:
        (root / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    described = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    main(Path(sys.argv[1]), [Case(**one) for one in described])
