"""The mends of vLLM's CPU faults: only for the version they were written for, and gone afterwards.

That they mend is shown against Hugging Face in tests/rollouts/test_vllm_engine.py.
"""

from __future__ import annotations

import pytest

from megatron_seirenes.device import vllm_cpu
from megatron_seirenes.errors import MissingComponentError

pytest.importorskip("vllm")


@pytest.fixture
def method():
    from megatron_seirenes.rollouts.vllm_process import prepare_environment

    prepare_environment(on_cuda=False)
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

    return UnquantizedFusedMoEMethod


def test_the_patch_is_active_only_within_and_restored_after_an_error(method):
    original = method._setup_kernel

    @vllm_cpu.expert_reload_mended()
    def fail():
        assert method._setup_kernel is not original
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert method._setup_kernel is original


def test_another_version_or_signature_is_refused(method, monkeypatch):
    original = method._setup_kernel
    with monkeypatch.context() as patch:
        patch.setattr(vllm_cpu, "installed_vllm", lambda: "0.33.0")
        with pytest.raises(MissingComponentError, match=r"vLLM 0\.33\.0"), vllm_cpu.expert_reload_mended():
            pass
    with monkeypatch.context() as patch:
        patch.setattr(method, "_setup_kernel", lambda self, layer: None)
        with (
            pytest.raises(MissingComponentError, match=r"_setup_kernel\(self, layer\)"),
            vllm_cpu.expert_reload_mended(),
        ):
            pass
    assert method._setup_kernel is original


def test_engines_that_start_within_do_not_use_shared_memory(method):
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    original = CpuCommunicator._all_group_ranks_share_shm_group_name
    with vllm_cpu.shared_memory_avoided():
        assert CpuCommunicator._all_group_ranks_share_shm_group_name(None) is False
    assert CpuCommunicator._all_group_ranks_share_shm_group_name is original
