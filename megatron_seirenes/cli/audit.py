"""`seirenes audit`: re-rolls every retired question of a run."""

from __future__ import annotations

from megatron_seirenes.cli.arguments import RunDirectory

EXAMPLE = "seirenes audit runs/first"


def audit(run_dir: RunDirectory) -> None:
    """Re-roll every retired question clean, beside those that clean success alone would have retired."""
    from megatron_seirenes.evaluation.audit import audit as run

    run(run_dir)
