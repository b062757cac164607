"""Keeps padded vocabulary ids from being drawn.

A checkpoint's embedding often has more rows than its tokenizer has tokens (Qwen pads to a multiple of 128, tensor
parallelism pads further). A drawn padded id is a token that no tokenizer can decode, and its log-probability is one
that the actor, which masks the same rows, does not have. The mask stands before temperature, so the processed
log-probabilities that the engine reports are those of the masked distribution.

vLLM 0.32 has two model runners with one logits processor interface each; this class answers to both, because which one
runs is vLLM's choice (the first on a CPU, the second on CUDA; the latter was not yet run).
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.logits_processor import LogitsProcessor as FirstRunnerProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunnerProcessor

KEY = "sampled_vocabulary"
"""The key of vLLM's `additional_config` that holds the number of ids that may be drawn."""


class VocabularyMask(FirstRunnerProcessor, SecondRunnerProcessor):
    """Gives every id at or above `additional_config[KEY]` a logit of minus infinity."""

    def __init__(self, vllm_config: VllmConfig, *runner_state: Any):
        self.sampled_vocabulary = int(vllm_config.additional_config[KEY])

    def apply(self, logits: torch.Tensor, *context: Any) -> torch.Tensor:
        """Masks [rows, vocabulary] logits in place."""
        logits[:, self.sampled_vocabulary :] = float("-inf")
        return logits

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Nothing to follow: the mask is the same for every row."""
