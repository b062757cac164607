"""The engine arguments that follow from a configuration; no vLLM needed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.architecture import architecture_from_config
from megatron_seirenes.config.schema import Config, ModelSection, RolloutSection
from megatron_seirenes.errors import UsageError
from megatron_seirenes.records import Sampling
from megatron_seirenes.rollouts.vllm_settings import (
    MAX_DEFAULT_KV_CACHE_BYTES,
    default_kv_cache_bytes,
    engine_arguments,
    sampling_arguments,
)

ARCHITECTURE = architecture_from_config(
    {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 100,
        "intermediate_size": 128,
        "max_position_embeddings": 512,
    }
)


def config(**rollout):
    return Config(
        model=ModelSection(path="m", dtype="float32"),
        rollout=RolloutSection(**rollout),
    )


def arguments(on_cuda=False, max_length=512, **rollout):
    return engine_arguments("m", config(**rollout), ARCHITECTURE, on_cuda=on_cuda, max_length=max_length)


def test_what_does_not_depend_on_the_device():
    for on_cuda in (False, True):
        found = arguments(on_cuda, max_sequences=7, tensor=2, prefix_caching=False)
        assert found["dtype"] == "float32"
        assert found["distributed_executor_backend"] == "external_launcher"
        assert found["distributed_timeout_seconds"] == found["cpu_distributed_timeout_seconds"] == 1800
        assert found["logprobs_mode"] == "processed_logprobs"
        assert (found["max_num_seqs"], found["tensor_parallel_size"]) == (7, 2)
        assert found["enable_prefix_caching"] is False
        assert found["trust_remote_code"] is False


def test_a_cpu_never_reads_a_prompt_in_parts():
    assert arguments()["enable_chunked_prefill"] is False
    assert arguments()["max_num_batched_tokens"] == 2048
    assert arguments(max_batched_tokens=512)["max_num_batched_tokens"] == 512
    with pytest.raises(UsageError, match=r"rollout.max_batched_tokens is 511.*512 tokens"):
        arguments(max_batched_tokens=511)


def test_cuda_takes_its_memory_and_graphs_from_the_configuration():
    found = arguments(on_cuda=True, memory_fraction=0.3, cuda_graphs=False, max_batched_tokens=100)
    assert found["gpu_memory_utilization"] == 0.3
    assert found["enforce_eager"] is True
    assert found["max_num_batched_tokens"] == 100
    assert "enable_chunked_prefill" not in found


def test_a_sequence_longer_than_the_context_is_refused():
    with pytest.raises(UsageError, match=r"513 tokens.*context of 512"):
        arguments(max_length=513)


def test_arguments_are_names_that_vllm_knows():
    pytest.importorskip("vllm")
    from megatron_seirenes.rollouts.vllm_process import prepare_environment

    prepare_environment(on_cuda=False)
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs

    for on_cuda in (False, True):
        assert set(arguments(on_cuda)) <= set(EngineArgs.__dataclass_fields__)
    SamplingParams(**sampling_arguments(Sampling(5), 1, (2,)))


@settings(max_examples=50, deadline=None)
@given(
    sequences=st.integers(1, 10_000),
    length=st.integers(1, 100_000),
    tensor=st.sampled_from([1, 2, 4]),
)
def test_the_default_cache_holds_two_sequences_and_is_no_larger_than_it_need_be(sequences, length, tensor):
    found = default_kv_cache_bytes(config(max_sequences=sequences, tensor=tensor), ARCHITECTURE, length)
    per_token = 2 * 2 * max(1, 2 // tensor) * 32 * 4
    assert found >= 2 * length * per_token
    assert found <= max(MAX_DEFAULT_KV_CACHE_BYTES, 2 * (length + 127) * per_token)
    assert found <= max(2, sequences) * (length + 127) * per_token
