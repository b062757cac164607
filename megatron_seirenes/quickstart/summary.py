"""What a quickstart showed: success before and after, Seirênes beside GRPO, on the same held-out questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.evaluation.statistics import Estimate, paired_difference

BENCHMARKS = {
    "clean": "clean",
    "wrong_claims": "under fixed wrong hints",
    "own_hints": "under its own hints",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One policy against another on one benchmark: the difference of success over the questions both answered."""

    benchmark: str
    policy: str
    against: str
    difference: Estimate


def read_results(folders: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """results.json of each policy's evaluation, by policy."""
    return {
        policy: json.loads((folder / "results.json").read_text(encoding="utf-8")) for policy, folder in folders.items()
    }


def compare(results: Mapping[str, Mapping[str, Any]], pairs: Sequence[tuple[str, str]]) -> list[Comparison]:
    """The paired difference of each (policy, against) on every benchmark."""
    return [
        Comparison(name, policy, against, _paired(results[policy][name]["success"], results[against][name]["success"]))
        for name in BENCHMARKS
        for policy, against in pairs
    ]


def _paired(after: Mapping[str, float], before: Mapping[str, float]) -> Estimate:
    shared = [question for question in after if question in before]
    return paired_difference([before[q] for q in shared], [after[q] for q in shared], seed=0)


def summary_markdown(results: Mapping[str, Mapping[str, Any]], comparisons: Sequence[Comparison]) -> str:
    """Two Markdown tables: success of every policy, and paired differences, in percent with 95 % intervals."""
    policies = list(results)
    lines = [
        "| held-out success, % | " + " | ".join(policies) + " |",
        "|---|" + "---|" * len(policies),
    ]
    for name, title in BENCHMARKS.items():
        questions = results[policies[0]][name]["questions"]
        cells = [
            _percent(Estimate(*(results[policy][name][key] for key in ("mean", "low", "high")))) for policy in policies
        ]
        lines.append(f"| {title} ({questions} questions) | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| difference, points | " + " | ".join(BENCHMARKS.values()) + " |",
        "|---|" + "---|" * len(BENCHMARKS),
    ]
    for policy, against in dict.fromkeys((c.policy, c.against) for c in comparisons):
        row = [c for c in comparisons if (c.policy, c.against) == (policy, against)]
        lines.append(f"| {policy} − {against} | " + " | ".join(_points(c.difference) for c in row) + " |")
    return "\n".join(lines) + "\n"


def _percent(value: Estimate) -> str:
    return f"{100 * value.mean:.1f} ({100 * value.low:.1f}–{100 * value.high:.1f})"


def _points(value: Estimate) -> str:
    return f"{100 * value.mean:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"
