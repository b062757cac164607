"""What an attack did (paper, Table 5): accuracy clean and hinted, Δ = hinted − clean, and the mean over benchmarks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from megatron_seirenes.evaluation.results import BenchmarkResult
from megatron_seirenes.evaluation.statistics import Estimate, paired_difference
from megatron_seirenes.evaluation.tables import markdown_table, percent, points, points_interval


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One benchmark under attack, as fractions. `left_out` questions had no usable hint and count nowhere."""

    benchmark: str
    samples: int
    questions: int
    left_out: int
    clean: float
    hinted: float
    change: Estimate


def attack_on(clean: BenchmarkResult, hinted: BenchmarkResult, left_out: int, seed: int) -> AttackResult:
    """The attack on one benchmark, from the same questions clean and hinted. Raises ValueError for other questions."""
    if list(clean.success) != list(hinted.success):
        raise ValueError(f"{clean.name}: clean and hinted answers are to different questions")
    change = paired_difference(list(clean.success.values()), list(hinted.success.values()), seed)
    means = clean.estimate.mean, hinted.estimate.mean
    return AttackResult(clean.name, clean.samples, len(clean.success), left_out, *means, change)


def overall(results: Sequence[AttackResult]) -> tuple[float, float, float]:
    """Clean, hinted and their difference, averaged over benchmarks."""
    clean, hinted = fmean(result.clean for result in results), fmean(result.hinted for result in results)
    return clean, hinted, hinted - clean


def attack_markdown(results: Sequence[AttackResult], spent: float | None) -> str:
    """The table, in percent and points, and what the endpoint cost."""
    clean, hinted, change = overall(results)
    samples = results[0].samples
    rows = [
        ["clean, %", *(percent(result.clean) for result in results), percent(clean)],
        ["hinted, %", *(percent(result.hinted) for result in results), percent(hinted)],
        ["Δ, points", *(points_interval(result.change) for result in results), points(change)],
        ["questions", *(_questions(result) for result in results), ""],
    ]
    table = markdown_table([f"avg@{samples}", *(result.benchmark for result in results), "Overall"], rows)
    return table if spent is None else f"{table}\nSpent on the endpoint: {spent:.4f}\n"


def write_attack(results: Sequence[AttackResult], spent: float | None, out: Path) -> None:
    """Writes attack.json and attack.md into `out`."""
    clean, hinted, change = overall(results)
    content: dict[str, Any] = {
        "benchmarks": {result.benchmark: asdict(result) for result in results},
        "overall": {"clean": clean, "hinted": hinted, "change": change},
        "spent": spent,
    }
    (out / "attack.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    (out / "attack.md").write_text(attack_markdown(results, spent), encoding="utf-8")


def _questions(result: AttackResult) -> str:
    return f"{result.questions} ({result.left_out} without a hint)" if result.left_out else str(result.questions)
