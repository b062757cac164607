"""A rank that died or hangs, as the others see it: a collective that fails, in the words of its library.

The others cannot go on without it, so they end with one message and exit code 1; a launcher that starts them again goes
on from the newest snapshot. A connection that a dead process held is closed at once; a rank that hangs, or a machine
that vanished, is noticed when a collective has waited for `faults.collective_minutes`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from megatron_seirenes.errors import SeirenesError

_SIGNS = ("gloo", "NCCL", "ProcessGroup", "Connection closed by peer", "Connection reset", "Timed out", "Broken pipe")
"""What stands in the message of a collective that failed; gloo raises plain RuntimeErrors."""
SHOWN = 160


class LostRank(SeirenesError):
    """Another rank does not answer any more."""


@contextmanager
def lost_ranks_told(size: int) -> Iterator[None]:
    """Inside, a collective that fails because of another rank of a world of `size` is raised as LostRank."""
    try:
        yield
    except RuntimeError as error:
        if size == 1 or not _of_a_collective(error):
            raise
        what = textwrap.shorten(str(error), SHOWN, placeholder=" ...")
        raise LostRank(
            f"another rank is gone or does not answer ({what}); this one ends with it. The other's message says why; "
            "start the run again, it goes on from the newest snapshot"
        ) from error


def _of_a_collective(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(sign in str(error) for sign in _SIGNS)
