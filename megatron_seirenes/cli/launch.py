"""What the launcher says of this process. Launchers tell it through the environment, and only they."""

from __future__ import annotations

import os


def rank() -> int:
    """This process's number among those of the launch; 0 without a launcher."""
    value = os.environ.get("RANK", "0")
    return int(value) if value.isdigit() else 0


def under_torchrun() -> bool:
    """Whether torchrun watches this process, and would take a non-zero exit for a failure."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def say(text: str) -> None:
    """Prints once a launch, not once a process."""
    if rank() == 0:
        print(text)
