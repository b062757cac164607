"""How the tokens of a flush are averaged: one weight for every rollout, given to each of its tokens.

A loss is the sum of weight x token loss. Weights are computed once, from the whole flush, before it is split over ranks
and micro-batches: an average formed inside a micro-batch would depend on the split.

First a *balance* gives every group its share of 1. `group`: equal shares, the mean over groups (Eq. 9, 12). `question`:
equal shares for questions, each divided equally among its groups (Eq. 13). H_q, the groups of a question, are those in
this flush that were born in the same collection step: a question collected twice counts as two.

Then an *aggregation* divides the share of a group among its tokens:

    sequence_mean   each rollout 1/G, each of its tokens 1/|o|            GRPO, Eq. 3
    constant        each rollout 1/G, each of its tokens 1/constant       Dr.GRPO, arXiv:2503.20783
    token_mean      every token the same                                  DAPO, arXiv:2503.14476

`token_mean` under `group` balance takes all tokens of the flush together, as DAPO does, so that a long group weighs
more; under `question` balance Eq. 13 fixes the share of a group, and the tokens are the same within it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from megatron_seirenes.games.game import Balance
from megatron_seirenes.records import Group, GroupSummary

Aggregation = Literal["sequence_mean", "token_mean", "constant"]
AnyGroup = Group | GroupSummary
"""Weights look at lengths, questions and births only, which a summary has too."""


def rollout_weights(
    groups: Sequence[AnyGroup], balance: Balance, aggregation: Aggregation, constant: int | None = None
) -> list[list[float]]:
    """For each group of a flush, the weight of one token of each of its rollouts.

    `constant` is the token limit of the stage, used by `constant` alone. A rollout without tokens has weight 0 and
    still counts in G. Raises ValueError when `constant` is needed and not positive.
    """
    if aggregation == "token_mean" and balance == "group":
        tokens = sum(_tokens(group) for group in groups)
        return [[1.0 / tokens if length else 0.0 for length in group.response_tokens] for group in groups]
    shares = group_shares(groups, balance)
    return [_divide(group, share, aggregation, constant) for group, share in zip(groups, shares, strict=True)]


def group_shares(groups: Sequence[AnyGroup], balance: Balance) -> list[float]:
    """The share of each group in the loss of the flush; they sum to 1."""
    if balance == "group":
        return [1.0 / len(groups)] * len(groups)
    questions = [(group.problem_id, group.birth.step) for group in groups]
    hints = Counter(questions)
    return [1.0 / (len(hints) * hints[question]) for question in questions]


def _divide(group: AnyGroup, share: float, aggregation: Aggregation, constant: int | None) -> list[float]:
    lengths = group.response_tokens
    if aggregation == "token_mean":
        tokens = _tokens(group)
        return [share / tokens if length else 0.0 for length in lengths]
    if aggregation == "constant":
        if constant is None or constant < 1:
            raise ValueError(f"aggregation `constant` needs a positive number of tokens, got {constant}")
        return [share / (len(lengths) * constant) if length else 0.0 for length in lengths]
    return [share / (len(lengths) * length) if length else 0.0 for length in lengths]


def _tokens(group: AnyGroup) -> int:
    return sum(group.response_tokens)
