"""The process around vLLM stays as it was."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

from megatron_seirenes.rollouts.vllm_process import prepare_environment, process_state_kept, torch_generator_kept


def state():
    return random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def test_generators_and_the_thread_setter_come_back_even_after_an_error():
    before, setter = state(), torch.set_num_threads

    @process_state_kept(torch.device("cpu"))
    def disturb():
        random.seed(1)
        numpy.random.seed(1)
        torch.manual_seed(1)
        torch.set_num_threads = lambda count: None
        assert state() != before
        raise RuntimeError

    with pytest.raises(RuntimeError):
        disturb()
    assert state() == before
    assert torch.set_num_threads is setter


def test_a_step_gives_torch_s_generator_back():
    before = state()
    with torch_generator_kept():
        torch.randint(0, 10, (3,))
        assert state() != before
    assert state() == before


def test_settings_are_ours_and_preferences_the_user_s():
    environment = {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    prepare_environment(True, environment)
    assert environment["VLLM_LOGGING_LEVEL"] == "INFO"
    assert environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
