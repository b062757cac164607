"""A digest is equal exactly when names, shapes, dtypes and bits are equal, in whatever order they come."""

from __future__ import annotations

import pytest
import torch

from megatron_seirenes.bridge.digest import digest

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "empty": torch.ones(0)}


def test_order_and_strides_do_not_count() -> None:
    transposed = {"b": WEIGHTS["b"], "empty": WEIGHTS["empty"], "a": WEIGHTS["a"].t().contiguous().t()}
    assert digest(transposed.items()) == digest(WEIGHTS.items())


@pytest.mark.parametrize(
    "change",
    [
        {"a": WEIGHTS["a"].view(3, 2)},
        {"a": WEIGHTS["a"].double()},
        {"a": WEIGHTS["a"].nextafter(torch.tensor(9.0))},
        {"b": -WEIGHTS["b"]},
        {"a": torch.zeros(2, 3), "b": WEIGHTS["b"]},
        {"c": torch.ones(1)},
    ],
)
def test_every_change_counts(change: dict[str, torch.Tensor]) -> None:
    assert digest((WEIGHTS | change).items()) != digest(WEIGHTS.items())


def test_names_count() -> None:
    renamed = {"a": WEIGHTS["b"], "b": WEIGHTS["a"], "empty": WEIGHTS["empty"]}
    assert digest(renamed.items()) != digest(WEIGHTS.items())


def test_a_name_twice_is_a_fault() -> None:
    with pytest.raises(ValueError, match="'a' occurs twice"):
        digest([("a", torch.ones(1)), ("a", torch.ones(1))])
