"""Micro-batches: whole sequences laid end to end (THD), as tensors.

The last token of a response is never fed in: nothing is predicted from it. Positions restart with every sequence.
The only padding there is: under sequence parallelism the token count must divide by the tensor-parallel size, and a
short extra sequence of its own fills it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from megatron_seirenes.actor.packing import pack
from megatron_seirenes.actor.sequences import Tokens


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`tokens` and `positions` are int64 [1, tokens].

    `rows` (int64, [responses' tokens]) says from which input position each response token is predicted, `targets` is
    the token itself. `members` are the indices of the sequences in the caller's list, in the order they lie here.
    """

    tokens: Tensor
    positions: Tensor
    packed: PackedSeqParams
    rows: Tensor
    targets: Tensor
    members: tuple[int, ...]


def check_sequences(sequences: Sequence[Tokens], vocabulary: int, sampled_vocabulary: int) -> None:
    """Raises ValueError for an empty prompt, a prompt id that does not exist, a response id that is never sampled."""
    for index, sequence in enumerate(sequences):
        if not sequence.prompt_ids:
            raise ValueError(f"sequence {index} has no prompt: its first response token cannot be predicted")
        _check_ids(sequence.prompt_ids, vocabulary, f"sequence {index}, prompt")
        if sequence.response_ids:
            _check_ids(sequence.response_ids, sampled_vocabulary, f"sequence {index}, response")


def _check_ids(ids: Sequence[int], vocabulary: int, place: str) -> None:
    smallest, largest = min(ids), max(ids)
    if smallest < 0 or largest >= vocabulary:
        raise ValueError(f"{place}: token ids from {smallest} to {largest}; 0 to {vocabulary - 1} are allowed")


def make_micro_batches(
    sequences: Sequence[Tokens], token_budget: int, alignment: int, device: torch.device
) -> list[MicroBatch]:
    """Micro-batches of every sequence that has a response, filled to `token_budget` input tokens."""
    answered = [index for index, sequence in enumerate(sequences) if sequence.response_ids]
    bins = pack([_input_length(sequences[index]) for index in answered], token_budget)
    return [make_micro_batch(sequences, [answered[i] for i in members], alignment, device) for members in bins]


def make_micro_batch(
    sequences: Sequence[Tokens], members: Sequence[int], alignment: int, device: torch.device
) -> MicroBatch:
    """The sequences at `members` end to end, padded to a multiple of `alignment`. Without members: padding alone."""
    chosen = [sequences[index] for index in members]
    lengths = [_input_length(sequence) for sequence in chosen]
    tokens = [*chain.from_iterable((*sequence.prompt_ids, *sequence.response_ids[:-1]) for sequence in chosen)]
    starts = [0, *accumulate(lengths)]
    padding = -len(tokens) % alignment or (0 if tokens else alignment)
    if padding:
        lengths.append(padding)
        tokens.extend([0] * padding)
    rows = chain.from_iterable(
        range(start + len(sequence.prompt_ids) - 1, start + length)
        for start, length, sequence in zip(starts, lengths, chosen, strict=False)
    )
    return MicroBatch(
        tokens=_integers(tokens, device)[None],
        positions=_integers(chain.from_iterable(map(range, lengths)), device)[None],
        packed=_packed(lengths, device),
        rows=_integers(rows, device),
        targets=_integers(chain.from_iterable(sequence.response_ids for sequence in chosen), device),
        members=tuple(members),
    )


def _input_length(sequence: Tokens) -> int:
    return len(sequence.prompt_ids) + len(sequence.response_ids) - 1


def _packed(lengths: Sequence[int], device: torch.device) -> PackedSeqParams:
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    longest = max(lengths)
    return PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds, max_seqlen_q=longest, max_seqlen_kv=longest
    )


def _integers(values: Iterable[int], device: torch.device) -> Tensor:
    return torch.tensor(list(values), dtype=torch.int64, device=device)
