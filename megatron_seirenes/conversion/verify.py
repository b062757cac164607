"""Whether a Hugging Face folder and a Megatron-Core checkpoint are the same model, by their numbers and what they say.

transformers computes the folder, Megatron-Core the checkpoint, both in float32; they share no code of ours but the
checkpoint's names. Compared are the log-probability of every token of the text and the entropy of every distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.sequences import TokenSequence
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.bridge.hf_folder import HfFolder
from megatron_seirenes.bridge.megatron_load import load_megatron_weights
from megatron_seirenes.bridge.megatron_reader import MegatronCheckpoint
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.distributed import start_distributed, stop_distributed
from megatron_seirenes.errors import DataError


@dataclass(frozen=True, slots=True)
class Agreement:
    """`differing` names the tensors whose bits differ; the rest are the largest differences, in nats."""

    tokens: int
    differing: tuple[str, ...]
    logprob_difference: float
    entropy_difference: float

    def holds(self, tolerance: float) -> bool:
        return not self.differing and max(self.logprob_difference, self.entropy_difference) <= tolerance


def compare_tensors(folder: Path, checkpoint: Path) -> tuple[str, ...]:
    """The tensors that are not equal bit for bit. Raises DataError for what cannot be read."""
    architecture = read_architecture(folder)
    opened = MegatronCheckpoint(checkpoint, architecture)
    differing = []
    with HfFolder(folder) as source:
        for name, tensor in opened.tensors():
            theirs = source.read(name, tuple(slice(0, size) for size in tensor.shape))
            same = theirs.dtype == tensor.dtype and torch.equal(_bits(theirs), _bits(tensor))
            differing += [] if same else [name]
    return tuple(differing)


def verify(folder: Path, checkpoint: Path, texts: Sequence[str]) -> Agreement:
    """Compares both on `texts`. Raises DataError when a text has fewer than two tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    sequences = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    for text, ids in zip(texts, sequences, strict=True):
        if len(ids) < 2:
            raise DataError(f"text {text!r}: has {len(ids)} tokens; at least 2 are needed to compare a prediction")
    ours, theirs = megatron_scores(folder, checkpoint, sequences), hf_scores(folder, sequences)
    difference = (ours - theirs).abs().amax(dim=1)
    return Agreement(
        tokens=ours.shape[1],
        differing=compare_tensors(folder, checkpoint),
        logprob_difference=float(difference[0]),
        entropy_difference=float(difference[1]),
    )


def megatron_scores(folder: Path, checkpoint: Path, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Log-probability and entropy, [2, tokens], of all tokens but the first of each sequence, by Megatron-Core."""
    config = Config.model_validate({"model": {"dtype": "float32"}})
    world = start_distributed(config.parallel)
    try:
        actor = Actor(read_architecture(folder), config, world.backend)
        with world.backend.actor_scope():
            load_megatron_weights(actor.modules, checkpoint)
        scored = actor.logprobs([TokenSequence(tuple(ids[:1]), tuple(ids[1:])) for ids in sequences])
    finally:
        stop_distributed()
    columns = [torch.tensor([one.logprobs, one.entropy]) for one in scored]
    return torch.cat(columns, dim=1)


def hf_scores(folder: Path, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """The same by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    columns = []
    for ids in sequences:
        with torch.no_grad():
            scores = model(torch.tensor([list(ids)])).logits[0, :-1].log_softmax(-1)
        chosen = scores.gather(-1, torch.tensor(list(ids[1:]))[:, None])[:, 0]
        columns.append(torch.stack([chosen, -(scores.exp() * scores).sum(-1)]))
    return torch.cat(columns, dim=1)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
