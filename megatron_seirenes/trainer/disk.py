"""What the run does when the disk refuses what it writes: full, read-only, or gone.

A refused snapshot leaves the one before whole (trainer/snapshot.py), a refused row of metrics is written later
(observe/writer.py), refused rollout records are lost, refused timelines and plots are never worth a word more than one.
`snapshot.on_failure` says whether the run then stops or goes on. Either way it says so, loudly.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from megatron_seirenes.errors import SeirenesError


class DiskRefused(SeirenesError):
    """The disk did not take what the run cannot go on without."""


class Disk:
    """Guards everything that writes into the run directory; `say` reaches people."""

    def __init__(self, on_failure: Literal["stop", "continue"], say: Callable[[str], None]):
        self._goes_on = on_failure == "continue"
        self._say = say
        self._told: set[str] = set()

    @contextmanager
    def guard(self, what: str, consequence: str, always_stop: bool = False) -> Iterator[None]:
        """Inside, an OSError means that `what` was refused, with this `consequence`. Raises DiskRefused to stop."""
        try:
            yield
        except OSError as error:
            message = f"the disk refused {what}: {reason(error)}; {consequence}"
            if always_stop or not self._goes_on:
                raise DiskRefused(
                    f"{message}. Make room or mend the directory; the same command goes on from the newest snapshot"
                ) from error
            self._say(f"WARNING: {message}; the run goes on (snapshot.on_failure)")

    @contextmanager
    def shrug(self, what: str) -> Iterator[None]:
        """Inside, an OSError is said once for each `what`, and that is all."""
        try:
            yield
        except OSError as error:
            if what not in self._told:
                self._told.add(what)
                self._say(f"WARNING: the disk refused {what}: {reason(error)}; the run goes on without")


REFUSALS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE)
)
"""What a disk says that is full, read-only, not ours, or broken: the machine's fault, never a bug."""


@contextmanager
def disk_refusals_told() -> Iterator[None]:
    """Inside, what no guard expected is told as a message, too: a disk that is full when the run begins or ends."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise DiskRefused(f"the disk refused: {reason(error)}. Make room or mend it; then the same command") from error


def reason(error: OSError) -> str:
    """What the system says, with the file it says it of."""
    text = error.strerror or str(error)
    return f"{text} ({error.filename})" if error.filename else text
