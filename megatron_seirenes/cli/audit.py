"""`seirenes audit`: re-rolls every retired question of a run. Not built yet."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import RunDirectory
from megatron_seirenes.errors import MissingComponentError

EXAMPLE = "seirenes audit runs/first"


def audit(run_dir: RunDirectory) -> None:
    """Re-roll every retired question and print mean@k, pass@k and the histogram (not built yet)."""
    raise MissingComponentError(
        "audit: not built yet. How many questions a run retired is in its metrics.jsonl (mastery/retired)"
    )
