"""How shapes and configurations become Megatron-Core's fields, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from actor_samples import training_sequences, weighted_likelihood

from megatron_seirenes.actor.actor import Actor
from megatron_seirenes.actor.model import padded_vocabulary, transformer_config
from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.config.schema import Config
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.errors import MissingComponentError, UsageError


def test_vocabulary_is_padded_to_the_tensor_parallel_size() -> None:
    assert [padded_vocabulary(61, tensor) for tensor in (1, 2, 4)] == [61, 62, 64]
    assert padded_vocabulary(64, 4) == 64


@pytest.mark.parametrize(
    ("name", "bias", "norm", "experts"),
    [
        ("llama_tied", False, False, None),
        ("qwen2", True, False, None),
        ("qwen3_tied", False, True, None),
        ("qwen3_moe", False, True, 4),
    ],
)
def test_families_differ_by_data(
    name: str, bias: bool, norm: bool, experts: int | None, model_folder: Callable[[str], Path], backend: Backend
) -> None:
    fields = transformer_config(read_architecture(model_folder(name)), Config(), backend)
    assert (fields.add_qkv_bias, fields.qk_layernorm, fields.num_moe_experts) == (bias, norm, experts)
    assert fields.bf16
    assert fields.hidden_dropout == fields.attention_dropout == fields.moe_aux_loss_coeff == 0.0


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    [
        ({"parallel": {"tensor": 2}}, UsageError, r"set parallel\.sequence_parallel to true"),
        ({"precision": {"fp8": "hybrid"}}, MissingComponentError, r"precision\.fp8 needs Transformer Engine on CUDA"),
    ],
)
def test_what_cannot_run_is_refused(
    sections: dict[str, object],
    error: type[Exception],
    message: str,
    model_folder: Callable[[str], Path],
    backend: Backend,
) -> None:
    if backend.is_cuda:
        pytest.skip("a machine with CUDA refuses less")
    config = Config.model_validate(sections)
    with pytest.raises(error, match=message):
        transformer_config(read_architecture(model_folder("qwen3_moe")), config, backend)


def test_recomputing_activations_changes_nothing(make_actor: Callable[..., Actor]) -> None:
    reports = []
    for recompute in ("none", "selective", "full"):
        actor = make_actor("qwen3_moe", actor={"recompute": recompute}, optimizer={"lr": 1e-2})
        reports.append([actor.update(training_sequences(), weighted_likelihood) for _ in range(2)])
    assert reports[1] == reports[0]
    assert reports[2] == reports[0]
