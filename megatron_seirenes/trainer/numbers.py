"""Numbers that are not numbers: what is skipped, what is kept for inspection, and when the run stops.

An update whose loss, gradient or reward is not finite is not made, on any rank (actor/optimizer.py); its groups are
spent and counted (`streams/{s}/skipped_nonfinite`), and the sequences of the micro-batches where it showed are written
to `logs/nonfinite-*.json`. After so many in a row the run stops, since what spoils them will not go away by itself.

An engine and an actor that disagree about the same tokens under the same weights mean that one of them does not hold
those weights: then the run stops before it learns from the step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from megatron_seirenes.actor.sequences import TrainingSequence, UpdateReport

NAMES_SHOWN = 8
FILES_KEPT = 100
"""A run that skips for ever must not fill the disk with what it skipped."""


class NonfiniteUpdates:
    """Counts skipped updates in a row; `limit` of them are too many. The count is part of a snapshot."""

    def __init__(self, limit: int):
        self.limit = limit
        self.in_a_row = 0
        self._last = ""

    def taken(self) -> None:
        """An update was made: whatever spoilt the ones before is over."""
        self.in_a_row = 0

    def skipped(self, stream: str, step: int, report: UpdateReport) -> str:
        """Counts a skipped update and says so in one line, for people."""
        self.in_a_row += 1
        self._last = (
            f"update of {stream} in step {step} skipped, not finite: {_culprits(report)}; "
            f"rollouts {_shortened(report.suspects)}"
        )
        return self._last

    def reason_to_stop(self) -> str | None:
        """Why the run must stop now, naming stream and questions; None to go on. Starts the count anew when it must."""
        if self.in_a_row < self.limit:
            return None
        self.in_a_row = 0
        return f"{self.limit} updates in a row were not finite (faults.nonfinite_in_a_row); the last: {self._last}"


def mismatch_fault(row: Mapping[str, float | int | None], limit: float | None) -> str | None:
    """What is wrong with a step's `mismatch/*` metrics; None when nothing is. NaN is always wrong."""
    mean = row.get("mismatch/logprob_abs_mean")
    if mean is None or (math.isfinite(mean) and (limit is None or mean <= limit)):
        return None
    return (
        f"engine and actor disagree on the tokens of step {row['step']}: mismatch/logprob_abs_mean is {mean:.4g} nats, "
        f"the largest gap {row['mismatch/logprob_abs_max']:.4g} (faults.mismatch_limit {limit}); one of them does not "
        "hold the weights of this step. Nothing was learned from it"
    )


def keep_for_inspection(
    logs: Path, step: int, stream: str, rank: int, report: UpdateReport, sequences: Sequence[TrainingSequence]
) -> Path | None:
    """Writes this rank's suspect sequences to `logs`; None when it has none, or so many are kept already."""
    wanted = set(report.suspects)
    suspects = [asdict(sequence) for sequence in sequences if sequence.name in wanted]
    if not suspects or len(list(logs.glob("nonfinite-*.json"))) >= FILES_KEPT:
        return None
    path = logs / f"nonfinite-step-{step:06d}-{stream}-rank-{rank}.json"
    content = {
        "step": step,
        "stream": stream,
        "loss": report.loss,
        "grad_norm": report.grad_norm,
        "sums": dict(report.sums),
        "sequences": suspects,
    }
    path.write_text(json.dumps(content), encoding="utf-8")  # NaN and Infinity as Python writes and reads them
    return path


def _culprits(report: UpdateReport) -> str:
    values = {"loss": report.loss, "gradient norm": report.grad_norm, **report.sums}
    spoilt = [f"{name} {value:g}" for name, value in values.items() if not math.isfinite(value)]
    return ", ".join(spoilt)


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
