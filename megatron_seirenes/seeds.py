"""Seeds as stable hashes of what they are for, so that no global random state decides anything.

The hash is blake2b over an unambiguous encoding: the same parts give the same seed on every machine, Python version
and hash seed.
"""

from __future__ import annotations

import hashlib
import json

Part = str | int | tuple[int, ...]


def stable_seed(*parts: Part) -> int:
    """A seed in [0, 2**63) from any sequence of strings, integers and tuples of integers."""
    encoded = json.dumps(parts, ensure_ascii=True, separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big") >> 1
