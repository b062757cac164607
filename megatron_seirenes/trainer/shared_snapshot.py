"""A snapshot that several ranks write together: rank 0 prepares and completes the folder, every rank writes its part.

A failure of the file system on any rank is raised on every rank, so that none waits for one that gave up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from megatron_seirenes.trainer.ranks import Ranks, from_first
from megatron_seirenes.trainer.snapshot import Cursor, write_snapshot

SaveParts = Callable[[Path], None]
"""Writes this rank's part of the actor into the given folder, and what else it has beside that folder. Collective."""


def write_shared_snapshot(
    ranks: Ranks,
    folder: Path,
    cursor: Cursor,
    state: Mapping[str, Any],
    config_yaml: str,
    *,
    settle: Callable[[], None],
    save_parts: SaveParts,
) -> Path:
    """`write_snapshot` on every rank; returns when the snapshot is complete. Raises OSError, on every rank.

    `settle` is called on rank 0 first: it returns when all that the snapshot relies on is on the disk.
    """
    outcome: Path | OSError
    if ranks.rank == 0:
        outcome = _lead(ranks, folder, cursor, state, config_yaml, settle, save_parts)
    else:
        prepared = from_first(ranks, None)
        if prepared is not None:
            _together(ranks, prepared, save_parts)
        outcome = folder
    outcome = from_first(ranks, outcome)
    if isinstance(outcome, OSError):
        raise outcome
    return outcome


def _lead(
    ranks: Ranks,
    folder: Path,
    cursor: Cursor,
    state: Mapping[str, Any],
    config_yaml: str,
    settle: Callable[[], None],
    save_parts: SaveParts,
) -> Path | OSError:
    joined = False

    def save(prepared: Path) -> None:
        nonlocal joined
        joined = True
        from_first(ranks, prepared)
        fault = _together(ranks, prepared, save_parts)
        if fault is not None:
            raise fault

    try:
        settle()
        return write_snapshot(folder, cursor, state, config_yaml, save)
    except OSError as error:
        if not joined:
            from_first(ranks, None)
        return error


def _together(ranks: Ranks, prepared: Path, save_parts: SaveParts) -> OSError | None:
    """Saves this rank's part; returns the first fault of any rank."""
    fault: OSError | None = None
    try:
        save_parts(prepared)
    except OSError as error:
        fault = error
    return next((found for found in ranks.gather(fault) if found is not None), None)
