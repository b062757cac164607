"""What an evaluation found: a benchmark's numbers, suites as in the paper's Table 1, degradation as in its Table 2.

Everything is computed from the kept answers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from megatron_seirenes.errors import DataError
from megatron_seirenes.evaluation.answers import Record
from megatron_seirenes.evaluation.statistics import (
    Estimate,
    bootstrap_interval,
    macro_interval,
    majority_is_right,
    paired_difference,
    pass_at_k,
)


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """One benchmark.

    `success` is the share of right answers by question id, in the order of its questions. `metrics` holds avg@k (k the
    number of samples), pass@j and maj@k. Questions without answers (their own hint was refused) are in `unanswered`
    and in nothing else.
    """

    name: str
    samples: int
    success: Mapping[str, float]
    metrics: Mapping[str, Estimate]
    unanswered: tuple[str, ...]
    truncated: float
    no_answer: float

    @property
    def estimate(self) -> Estimate:
        """avg@k."""
        return self.metrics[f"avg@{self.samples}"]


@dataclass(frozen=True, slots=True)
class Degradation:
    """A perturbed benchmark beside its clean twin: clean − perturbed over the questions that both have."""

    name: str
    clean: float
    perturbed: float
    questions: int
    difference: Estimate


@dataclass(frozen=True, slots=True)
class Suite:
    """Several benchmarks and the unweighted mean of their avg@k, AVG in Table 1."""

    name: str
    benchmarks: Mapping[str, float]
    average: Estimate


@dataclass(frozen=True, slots=True)
class Results:
    """One evaluation: its benchmarks by name, and what is made of them."""

    benchmarks: Mapping[str, BenchmarkResult]
    suites: tuple[Suite, ...] = ()
    degradations: tuple[Degradation, ...] = ()

    def metrics(self) -> dict[str, float | None]:
        """The row for metrics.jsonl: avg@k with its interval, and pass@k and maj@k where k is above 1."""
        row: dict[str, float | None] = {}
        for name, result in self.benchmarks.items():
            k, prefix = result.samples, f"evaluation/{name}"
            row[f"{prefix}/avg@{k}"] = result.estimate.mean
            row[f"{prefix}/avg@{k}/low"] = result.estimate.low
            row[f"{prefix}/avg@{k}/high"] = result.estimate.high
            if k > 1:
                row[f"{prefix}/pass@{k}"] = result.metrics[f"pass@{k}"].mean
                row[f"{prefix}/maj@{k}"] = result.metrics[f"maj@{k}"].mean
        return row


def summarise(name: str, samples: int, answers: Mapping[str, Sequence[Record]], seed: int) -> BenchmarkResult:
    """The numbers of a benchmark from its answers by question. Raises DataError when no question was answered."""
    answered = {question: records for question, records in answers.items() if records[0]["sample"] is not None}
    if not answered:
        raise DataError(f"evaluation.benchmarks.{name}: no question was answered")
    right = {question: sum(record["correct"] for record in records) for question, records in answered.items()}
    success = {question: count / samples for question, count in right.items()}
    values: dict[str, list[float]] = {f"avg@{samples}": list(success.values())}
    for k in pass_ks(samples):
        values[f"pass@{k}"] = [pass_at_k(samples, count, k) for count in right.values()]
    if samples > 1:
        votes = ([(record["correct"], record["extracted"]) for record in records] for records in answered.values())
        values[f"maj@{samples}"] = [majority_is_right(question) for question in votes]
    every = [record for records in answered.values() for record in records]
    return BenchmarkResult(
        name=name,
        samples=samples,
        success=success,
        metrics={metric: bootstrap_interval(numbers, seed) for metric, numbers in values.items()},
        unanswered=tuple(question for question in answers if question not in answered),
        truncated=fmean(record["truncated"] for record in every),
        no_answer=fmean(record["reason"] == "no_answer" for record in every),
    )


def pass_ks(samples: int) -> list[int]:
    """The k of pass@k that are told: powers of two up to the samples, and their number; pass@1 is avg@k."""
    return sorted({2**power for power in range(1, samples.bit_length()) if 2**power <= samples} | {samples} - {1})


def suite_of(name: str, benchmarks: Sequence[BenchmarkResult], seed: int) -> Suite:
    """The suite over these benchmarks."""
    average = macro_interval([list(result.success.values()) for result in benchmarks], seed)
    return Suite(name, {result.name: result.estimate.mean for result in benchmarks}, average)


def degradation_of(perturbed: BenchmarkResult, clean: BenchmarkResult, seed: int) -> Degradation:
    """clean − perturbed over the questions that both have, paired by the id within their files.

    Raises DataError when they share none, or when an id is not unique within its benchmark.
    """
    before, after = _by_own_id(clean), _by_own_id(perturbed)
    shared = [question for question in after if question in before]
    if not shared:
        raise DataError(
            f"evaluation.benchmarks.{perturbed.name}.clean: {clean.name} has none of its questions "
            f"(ids like {next(iter(after))!r} and {next(iter(before))!r}); pairs are made by the id within the file"
        )
    clean_values, values = [before[question] for question in shared], [after[question] for question in shared]
    difference = paired_difference(values, clean_values, seed)
    return Degradation(perturbed.name, fmean(clean_values), fmean(values), len(shared), difference)


def _by_own_id(result: BenchmarkResult) -> dict[str, float]:
    """Success by the part of a question's id that follows the name of its file."""
    own = {question.partition("/")[2] or question: value for question, value in result.success.items()}
    if len(own) != len(result.success):
        raise DataError(f"evaluation.benchmarks.{result.name}: ids are not unique without the names of their files")
    return own


def results_json(results: Results) -> dict[str, Any]:
    """results.json: an object a benchmark."""
    return {
        name: {
            "metric": f"avg@{result.samples}",
            "questions": len(result.success),
            "mean": result.estimate.mean,
            "low": result.estimate.low,
            "high": result.estimate.high,
            "metrics": {metric: _estimate(estimate) for metric, estimate in result.metrics.items()},
            "unanswered": list(result.unanswered),
            "truncated": result.truncated,
            "no_answer": result.no_answer,
            "success": dict(result.success),
        }
        for name, result in results.benchmarks.items()
    }


def summary_json(results: Results) -> dict[str, Any]:
    """summary.json: suites, and degradations with their average."""
    pairs = results.degradations
    return {
        "suites": {
            suite.name: {"benchmarks": dict(suite.benchmarks), "average": _estimate(suite.average)}
            for suite in results.suites
        },
        "robustness": {
            "pairs": {
                pair.name: {
                    "clean": pair.clean,
                    "perturbed": pair.perturbed,
                    "questions": pair.questions,
                    "degradation": _estimate(pair.difference),
                }
                for pair in pairs
            },
            "average": fmean(pair.difference.mean for pair in pairs) if pairs else None,
        },
    }


def _estimate(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
