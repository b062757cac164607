"""What became of a pool of questions: where they came from, why some were removed, how difficulty lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from megatron_seirenes.evaluation.tables import markdown_table
from megatron_seirenes.problems.buckets import difficulty_bucket
from megatron_seirenes.problems.duplicates import Removal
from megatron_seirenes.records import Problem


@dataclass(frozen=True, slots=True)
class Preparation:
    """A prepared set. `right` counts right answers in `rollouts` of every question that was measured."""

    pool: tuple[Problem, ...]
    removals: tuple[Removal, ...]
    right: Mapping[str, int]
    rollouts: int
    buckets: int
    chosen: tuple[Problem, ...]

    def by_bucket(self, questions: Iterable[str]) -> list[int]:
        """How many of these questions lie in each bucket, the hardest first."""
        counts = Counter(difficulty_bucket(self.right[question], self.rollouts, self.buckets) for question in questions)
        return [counts[bucket] for bucket in range(self.buckets)]


def report_json(preparation: Preparation) -> dict[str, Any]:
    """report.json."""
    chosen = [problem.id for problem in preparation.chosen]
    histogram = Counter(preparation.right.values())
    return {
        "pool": dict(Counter(problem.source for problem in preparation.pool)),
        "removed": dict(Counter(removal.reason for removal in preparation.removals)),
        "overlap": dict(Counter(removal.benchmark for removal in preparation.removals if removal.benchmark)),
        "measured": len(preparation.right),
        "rollouts": preparation.rollouts,
        "right_answers": {str(count): histogram[count] for count in range(preparation.rollouts + 1)},
        "buckets": {"measured": preparation.by_bucket(preparation.right), "chosen": preparation.by_bucket(chosen)},
        "chosen": dict(Counter(problem.source for problem in preparation.chosen)),
    }


def report_markdown(preparation: Preparation) -> str:
    """report.md: four small tables."""
    facts = report_json(preparation)
    counts = facts["right_answers"]
    sources = [[source, str(count), str(facts["chosen"].get(source, 0))] for source, count in facts["pool"].items()]
    buckets = zip(facts["buckets"]["measured"], facts["buckets"]["chosen"], strict=True)
    parts = [
        markdown_table(["source", "pool", "chosen"], sources),
        markdown_table(["removed", "questions"], [[reason, str(count)] for reason, count in facts["removed"].items()]),
        markdown_table(["overlap with", "questions"], [[name, str(count)] for name, count in facts["overlap"].items()]),
        markdown_table(["right answers", *counts], [["questions", *map(str, counts.values())]]),
        markdown_table(
            ["bucket, hardest first", "measured", "chosen"],
            [[str(number), str(measured), str(chosen)] for number, (measured, chosen) in enumerate(buckets)],
        ),
    ]
    return "\n".join(part for part in parts if part.count("\n") > 2)
