"""The CPU shims of Megatron-Core: active within the block only, and never left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest
import torch

from megatron_seirenes.device import megatron_cpu
from megatron_seirenes.device.backend import Backend, detect_backend
from megatron_seirenes.device.megatron_cpu import megatron_on_cpu, shims
from megatron_seirenes.errors import MissingComponentError

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the shims are for machines without CUDA")


def patched_attributes() -> list[tuple[bool, object]]:
    """Whether each owner has the attribute of its own, and the object that looking it up gives."""
    return [(shim.attribute in vars(shim.owner), getattr(shim.owner, shim.attribute)) for shim in shims()]


def same(left: list[tuple[bool, object]], right: list[tuple[bool, object]]) -> bool:
    return all(a[0] == b[0] and a[1] is b[1] for a, b in zip(left, right, strict=True))


def fail_inside(error: Exception) -> None:
    with megatron_on_cpu():
        torch.manual_seed(99)
        raise error


@pytest.fixture(autouse=True)
def _leaves_no_trace() -> Iterator[None]:
    before, state = patched_attributes(), torch.get_rng_state()
    yield
    assert same(before, patched_attributes())
    assert torch.equal(state, torch.get_rng_state())


def test_every_shim_is_active_inside() -> None:
    before = patched_attributes()
    with megatron_on_cpu():
        for was, now in zip(before, patched_attributes(), strict=True):
            assert was[1] is not now[1]
        assert torch.zeros(2, device="cuda").device.type == "cpu"
        assert torch.empty(1, device=torch.cuda.current_device(), pin_memory=True).device.type == "cpu"
        assert torch.ones(1).cuda().type() == "torch.cuda.FloatTensor"
        torch.cuda.manual_seed(3)
        torch.cuda.current_stream().wait_stream(torch.cuda.Stream())
        assert torch.cuda.Event().query()


def test_nested_blocks_patch_once() -> None:
    before = patched_attributes()
    with megatron_on_cpu():
        inside = patched_attributes()
        with pytest.raises(KeyError):
            fail_inside(KeyError())
        assert same(inside, patched_attributes())
    assert same(before, patched_attributes())


def test_restored_after_an_exception() -> None:
    with pytest.raises(RuntimeError, match="inside"):
        fail_inside(RuntimeError("inside"))


def test_restored_when_a_shim_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(original: object) -> object:
        raise ValueError("cannot")

    table = shims()
    broken = (*table[:5], dataclasses.replace(table[5], make=refuse), *table[6:])
    monkeypatch.setattr(megatron_cpu, "shims", lambda: broken)
    with pytest.raises(ValueError, match="cannot"), megatron_on_cpu():
        pytest.fail("the block must not run")
    monkeypatch.undo()
    with megatron_on_cpu():
        pass


def test_what_somebody_else_patched_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(*args: object, **kwargs: object) -> str:
        return "mine"

    monkeypatch.setattr(torch, "zeros", mine)
    with megatron_on_cpu():
        assert torch.zeros(1, device="cuda") == "mine"
    assert torch.zeros is mine


def test_another_megatron_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    uncached: Callable[[], object] = shims.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.20.0")
    with pytest.raises(MissingComponentError, match=r"megatron-core 0\.20\.0 is installed.*0\.19\.2"):
        uncached()


def test_another_signature_is_refused() -> None:
    shim = next(shim for shim in shims() if shim.parameters)
    with pytest.raises(MissingComponentError, match="was expected to take"):
        megatron_cpu._check_signature(dataclasses.replace(shim, parameters=("other",)))


def test_scope_does_nothing_on_cuda() -> None:
    before = patched_attributes()
    with Backend(torch.device("cuda", 0)).actor_scope():
        assert same(before, patched_attributes())
    with detect_backend().actor_scope():
        assert not same(before, patched_attributes())
