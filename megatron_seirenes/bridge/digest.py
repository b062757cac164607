"""One short string that stands for a whole set of weights: equal when every name, shape, dtype and bit is equal.

It does not depend on the order in which tensors arrive, so two sides of a sync may stream them differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch


def digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """The blake2b digest (64 hexadecimal digits) of (name, dtype, shape, bytes) of all `tensors`, ordered by name.

    Bits count, not values: -0.0 differs from 0.0. Raises ValueError when a name occurs twice.
    """
    parts: dict[str, bytes] = {}
    for name, tensor in tensors:
        if name in parts:
            raise ValueError(f"tensor {name!r} occurs twice")
        parts[name] = _tensor_digest(tensor)
    whole = hashlib.blake2b(digest_size=32)
    for name in sorted(parts):
        whole.update(_framed(name.encode()))
        whole.update(parts[name])
    return whole.hexdigest()


def _tensor_digest(tensor: torch.Tensor) -> bytes:
    part = hashlib.blake2b(digest_size=32)
    part.update(_framed(f"{tensor.dtype} {tuple(tensor.shape)}".encode()))
    part.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return part.digest()


def _framed(text: bytes) -> bytes:
    """Length-prefixed, so that no two sequences of names run together into the same bytes."""
    return len(text).to_bytes(8, "big") + text
