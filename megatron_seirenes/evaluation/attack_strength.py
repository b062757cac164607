"""Attack strength of a run (paper, Appendix E, Table 4), read from its metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.report.attack import AttackStatistics, attack_statistics


def read_attack_statistics(metrics: Path, first: int = 1, last: int | None = None) -> AttackStatistics | None:
    """The statistics over steps `first` to `last` (all by default), as Table 4 compares runs over their common range.

    Null when no step of the range has an attack/delta. Raises DataError naming the row for a file that is none.
    """
    if not metrics.exists():
        raise DataError(f"{metrics}: no such file")
    deltas = []
    for number, line in enumerate(metrics.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            step, delta = int(row["step"]), row.get("attack/delta")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DataError(f"{metrics}, row {number}: no row of metrics") from None
        if delta is not None and step >= first and (last is None or step <= last):
            deltas.append(float(delta))
    return attack_statistics(deltas)
