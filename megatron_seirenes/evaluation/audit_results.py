"""The audit's table (paper, Table 3): how well retired questions are still solved, and how evenly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from megatron_seirenes.evaluation.tables import markdown_table, percent
from megatron_seirenes.observe.report.attack import THRESHOLDS, AttackStatistics


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One way of retiring. Shares of questions, as fractions; `histogram[c]` counts questions right c times."""

    name: str
    questions: int
    samples: int
    mean: float
    passed: float
    all_right: float
    one_wrong: float
    below_half: float
    histogram: tuple[int, ...]


def audit_row(name: str, rates: Sequence[float], samples: int) -> AuditRow:
    """The row of these questions from their shares of right answers, `samples` answers each."""
    right = [round(rate * samples) for rate in rates]
    return AuditRow(
        name=name,
        questions=len(rates),
        samples=samples,
        mean=fmean(rates),
        passed=fmean(count > 0 for count in right),
        all_right=fmean(count == samples for count in right),
        one_wrong=fmean(count == samples - 1 for count in right),
        below_half=fmean(2 * count < samples for count in right),
        histogram=tuple(right.count(count) for count in range(samples + 1)),
    )


def audit_markdown(rows: Sequence[AuditRow], strength: AttackStatistics | None) -> str:
    """Table 3, the histogram behind it, and Table 4's row for the run."""
    k = rows[0].samples
    half = (k + 1) // 2
    table = markdown_table(
        ["retired by", "audit rollouts", f"mean@{k}", f"pass@{k}", f"{k}/{k}", f"{k - 1}/{k}", f"<{half}/{k}"],
        [
            [row.name, f"{row.questions * k:,}"]
            + [percent(value) + "%" for value in (row.mean, row.passed, row.all_right, row.one_wrong, row.below_half)]
            for row in rows
        ],
    )
    histogram = markdown_table(
        ["questions right", *(f"{count}/{k}" for count in range(k + 1))],
        [[row.name, *map(str, row.histogram)] for row in rows],
    )
    return "\n".join([table, histogram, *([] if strength is None else [strength_markdown(strength)])])


def strength_markdown(strength: AttackStatistics) -> str:
    """One row of Table 4: tail frequencies, early and late saturation, slope, streak and strong steps."""
    header = [f"Pr(Δ > {round(100 * threshold)} %), %" for threshold in THRESHOLDS]
    header += ["early, %", "late, %", "slope, %/step", "longest streak", "strong steps", "steps"]
    slope = "–" if strength.slope is None else f"{100 * strength.slope:+.3f}"
    row = [*map(percent, strength.tail), _share(strength.early), _share(strength.late), slope]
    row += [str(strength.longest_streak), str(strength.strong_steps), str(strength.steps)]
    return markdown_table(header, [row])


def write_audit(rows: Sequence[AuditRow], strength: AttackStatistics | None, out: Path) -> None:
    """Writes audit.json and audit.md into `out`."""
    content = {
        "retired": {row.name: asdict(row) for row in rows},
        "attack_strength": None if strength is None else asdict(strength),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "audit.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (out / "audit.md").write_text(audit_markdown(rows, strength), encoding="utf-8")


def _share(value: float | None) -> str:
    return "–" if value is None else percent(value)
