"""What can go wrong because of the call, the input or the machine, as opposed to a bug of ours.

Every error here is shown to a user as its message alone, without a traceback, and says what was seen, what was
expected and what to do. The exit code of the command follows from the class (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Sequence


class SeirenesError(Exception):
    """The run failed for a reason that a user can understand and mend."""

    exit_code = 1


class UsageError(SeirenesError):
    """The call, the configuration or an input file is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """Everything that is wrong with a configuration, in one report: one line a fault."""

    def __init__(self, source: str, faults: Sequence[str]):
        self.source = source
        self.faults = tuple(faults)
        count = f"{len(self.faults)} fault{'s' if len(self.faults) != 1 else ''}"
        super().__init__("\n".join([f"{source}: {count}", *(f"  {fault}" for fault in self.faults)]))


class DataError(UsageError):
    """A file of problems, records or weights does not hold what it should; names the file and the row or tensor."""


class MissingComponentError(SeirenesError):
    """A package, a device or a part that is not built yet is needed; says which and how to get it."""

    exit_code = 3


class FirstRankFailed(SeirenesError):
    """Rank 0 failed and has said why; this rank ends with it."""

    def __init__(self, exit_code: int):
        super().__init__("rank 0 failed; see its message")
        self.exit_code = exit_code


class StoppedBySignal(SeirenesError):
    """The run was told to stop and saved everything first."""

    exit_code = 75
