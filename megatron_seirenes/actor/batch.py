"""Micro-batches: whole sequences laid end to end (THD), as tensors.

The last token of a response is never fed in: nothing is predicted from it. Positions restart with every sequence.
Padding is a sequence of its own at the end, where there is any: under sequence parallelism the token count must divide
by the tensor-parallel size, and an all-gather of experts' tokens wants as many of every rank (`filled_up`). Under
context parallelism every sequence is padded so that it can be cut, and a micro-batch holds this rank's part of it
(`context.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from megatron_seirenes.actor.context import ContextShare
from megatron_seirenes.actor.packing import pack
from megatron_seirenes.actor.sequences import Tokens

WHOLE = ContextShare()


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`tokens` (int64 [1, tokens]) are this rank's, `positions` (int64 [1, all tokens]) those of all context ranks.

    `padding` (bool [1, tokens]) is True where a token is none. `targets` are the response tokens, `rows` (int64) says
    from which of this rank's tokens each of those that it predicts is predicted, and `slots` which of the targets these
    are (None: all). `members` are the indices of the sequences in the caller's list, in the order they lie here.
    """

    tokens: Tensor
    positions: Tensor
    padding: Tensor
    packed: PackedSeqParams
    rows: Tensor
    targets: Tensor
    members: tuple[int, ...]
    slots: Tensor | None = None


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
    sequences: Sequence[Tokens],
    token_budget: int,
    alignment: int,
    device: torch.device,
    context: ContextShare = WHOLE,
) -> list[MicroBatch]:
    """Micro-batches of every sequence that has a response, filled to `token_budget` input tokens."""
    answered = [index for index, sequence in enumerate(sequences) if sequence.response_ids]
    bins = pack([_input_length(sequences[index]) for index in answered], token_budget)
    return [make_micro_batch(sequences, [answered[i] for i in part], alignment, device, context) for part in bins]


def make_micro_batch(
    sequences: Sequence[Tokens],
    members: Sequence[int],
    alignment: int,
    device: torch.device,
    context: ContextShare = WHOLE,
) -> MicroBatch:
    """The sequences at `members` end to end, padded to a multiple of `alignment`. Without members: padding alone."""
    tokens: list[int] = []
    real: list[bool] = []
    rows: list[int] = []
    slots: list[int] = []
    lengths: list[int] = []
    targets: list[int] = []
    for sequence in (sequences[index] for index in members):
        inputs = (*sequence.prompt_ids, *sequence.response_ids[:-1])
        lengths.append(context.padded(len(inputs)))
        first = len(sequence.prompt_ids) - 1  # predicts the first response token
        own = context.own(lengths[-1])
        for row, position in enumerate(own, start=len(tokens)):
            if first <= position < len(inputs):
                rows.append(row)
                slots.append(len(targets) + position - first)
        tokens += [inputs[position] if position < len(inputs) else 0 for position in own]
        real += [position < len(inputs) for position in own]
        targets += sequence.response_ids
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    batch = MicroBatch(
        tokens=_integers(tokens, device)[None],
        positions=_integers(chain.from_iterable(map(range, lengths)), device)[None],
        padding=~torch.tensor(real, dtype=torch.bool, device=device)[None],
        packed=_packed(bounds, max(lengths, default=0)),
        rows=_integers(rows, device),
        targets=_integers(targets, device),
        members=tuple(members),
        slots=None if context.size == 1 else _integers(slots, device),
    )
    return _padded(batch, context.padding(len(tokens), alignment), context.size)


def filled_up(batch: MicroBatch, tokens: int, context: ContextShare = WHOLE) -> MicroBatch:
    """`batch` with padding behind it, so that this rank has `tokens` of its tokens: not fewer than it has.

    Under context parallelism `tokens` is even: a rank's part of a sequence is two equal chunks.
    """
    return _padded(batch, (tokens - batch.tokens.shape[1]) * context.size, context.size)


def _padded(batch: MicroBatch, length: int, ranks: int) -> MicroBatch:
    """`batch` with one more sequence of padding, `length` tokens over all `ranks`."""
    if not length:
        return batch
    own, bounds = length // ranks, batch.packed.cu_seqlens_q
    return replace(
        batch,
        tokens=torch.cat([batch.tokens, batch.tokens.new_zeros((1, own))], dim=1),
        positions=torch.cat([batch.positions, torch.arange(length, device=bounds.device)[None]], dim=1),
        padding=torch.cat([batch.padding, batch.padding.new_ones((1, own))], dim=1),
        packed=_packed(torch.cat([bounds, bounds[-1:] + length]), max(batch.packed.max_seqlen_q, length)),
    )


def _input_length(sequence: Tokens) -> int:
    return len(sequence.prompt_ids) + len(sequence.response_ids) - 1


def _packed(bounds: Tensor, longest: int) -> PackedSeqParams:
    return PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=bounds, cu_seqlens_kv=bounds, max_seqlen_q=longest, max_seqlen_kv=longest
    )


def _integers(values: Iterable[int], device: torch.device) -> Tensor:
    return torch.tensor(list(values), dtype=torch.int64, device=device)
