"""Sequences and losses that several tests of the actor use."""

from __future__ import annotations

from dataclasses import replace

from megatron_seirenes.actor.sequences import TrainingSequence
from megatron_seirenes.objectives.token_loss import LossSum, TokenBatch

PROMPTS = ((3, 5, 7), (11, 2), (1, 2, 3, 4, 5, 6, 7), (60,), (9, 9, 9, 8), (17, 4, 33, 6, 2))
RESPONSES = ((8, 9, 10, 11), (12, 60, 3, 3, 5, 7, 20), (5,), (1, 0, 44, 31, 28, 7), (50, 51), (2, 3, 2, 3, 2, 3, 2, 3))
WEIGHTS = (0.5, -1.0, 2.0, 0.25, 1.5, -0.75)


def training_sequences() -> list[TrainingSequence]:
    """Six sequences of different lengths and weights."""
    return [
        TrainingSequence(prompt, response, (0.0,) * len(response), 0.0, weight)
        for prompt, response, weight in zip(PROMPTS, RESPONSES, WEIGHTS, strict=True)
    ]


def averaged_sequences() -> list[TrainingSequence]:
    """The same with weights that make the loss an average over all response tokens."""
    tokens = sum(map(len, RESPONSES))
    return [replace(sequence, weight=sequence.weight / tokens) for sequence in training_sequences()]


def weighted_likelihood(batch: TokenBatch) -> LossSum:
    """Supervised learning: minus the weighted log-likelihood."""
    return LossSum(-(batch.weights * batch.logprobs).sum(), {"tokens": batch.weights.new_tensor(len(batch.weights))})
