"""The paper's own figures recomputed where its text gives the inputs: equal to the printed decimals.

The inputs are printed with one or two decimals, and every figure that the paper makes of printed ones is equal to its
last decimal: 16 averages and 13 gains of Table 1, 10 averages of Table 2, shares of Tables 3 and 4, 14 changes and 6
overall figures of Table 5. What rounding hides is said where it shows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from megatron_seirenes.config.loading import load_config
from megatron_seirenes.evaluation.attack_results import AttackResult, attack_markdown, overall
from megatron_seirenes.evaluation.attack_strength import read_attack_statistics
from megatron_seirenes.evaluation.audit_results import audit_markdown, audit_row, strength_markdown
from megatron_seirenes.evaluation.results import BenchmarkResult, Degradation, Results, degradation_of, suite_of
from megatron_seirenes.evaluation.statistics import Estimate
from megatron_seirenes.evaluation.tables import decimals, percent, points, results_markdown

REPOSITORY = Path(__file__).resolve().parents[2]

# AIME24, AIME25, AIME26, IMO-Bench, MINERVA, Olympiad, HMMT26, printed AVG, printed gain over the family's first row
TABLE_1 = {
    "Qwen2.5-7B-Instruct": ([10.2, 5.5, 5.3, 8.8, 29.4, 34.9, 2.7], "13.8", None),
    "ExGRPO": ([14.2, 13.2, 9.0, 9.9, 29.9, 42.0, 6.0], "17.7", "+3.9"),
    "LUFFY": ([13.9, 12.9, 12.3, 11.0, 32.8, 41.5, 6.3], "18.7", "+4.9"),
    "SAGE 7B": ([15.8, 13.7, 9.3, 11.2, 31.6, 42.2, 6.3], "18.6", "+4.8"),
    "DAPO 7B": ([14.1, 12.0, 9.3, 9.5, 30.5, 42.1, 4.3], "17.4", "+3.6"),
    "Seirênes 7B": ([22.8, 15.4, 17.8, 13.3, 34.7, 48.0, 8.5], "22.9", "+9.1"),
    "Qwen3-4B-Instruct": ([61.5, 48.8, 56.8, 34.1, 35.4, 66.3, 31.9], "47.8", None),
    "Scaf-GRPO": ([61.6, 49.1, 54.3, 33.9, 38.6, 67.1, 32.2], "48.1", "+0.3"),
    "SAGE 4B": ([60.1, 49.1, 57.8, 32.5, 41.1, 67.2, 29.9], "48.2", "+0.4"),
    "InT": ([66.6, 58.9, 64.7, 38.8, 38.3, 67.8, 37.9], "53.3", "+5.5"),
    "Dr.GRPO 4B": ([65.0, 63.3, 64.9, 38.0, 39.4, 68.3, 37.2], "53.7", "+5.9"),
    "DAPO 4B": ([63.0, 60.2, 62.2, 37.7, 40.1, 68.3, 33.0], "52.1", "+4.3"),
    "Seirênes 4B": ([74.3, 64.9, 70.8, 41.9, 42.8, 71.9, 39.4], "58.0", "+10.2"),
    "Qwen3-30B-A3B": ([75.0, 60.6, 75.1, 40.5, 35.0, 70.0, 41.0], "56.7", None),
    "DAPO 30B": ([78.6, 66.8, 75.2, 44.3, 40.6, 72.8, 42.3], "60.1", "+3.4"),
    "Seirênes 30B": ([81.8, 74.1, 79.7, 46.7, 41.7, 74.3, 49.0], "63.9", "+7.2"),
}


def result(name: str, mean: float) -> BenchmarkResult:
    """A benchmark of a thousand questions with this mean (a multiple of 0.001)."""
    right = round(1000 * mean)
    success = {f"q/{n}": float(n < right) for n in range(1000)}
    return BenchmarkResult(name, 1, success, {"avg@1": Estimate(mean, mean, mean)}, (), 0.0, 0.0)


@pytest.mark.parametrize("model", TABLE_1)
def test_table_1_averages(model):
    values, average, _ = TABLE_1[model]
    suite = suite_of("paper", [result(str(n), value / 100) for n, value in enumerate(values)], seed=0)
    assert percent(suite.average.mean) == average


# Gains whose last digit is one less when the averages are not rounded first: 4.84, 4.24 and 3.34.
GAINS_OF_ROUNDED_AVERAGES = {"LUFFY", "DAPO 4B", "DAPO 30B"}


def test_table_1_gains():
    """The paper subtracts printed averages: so all 13 gains are equal; from unrounded averages, all but three."""
    others = set()
    for model, (values, average, gain) in TABLE_1.items():
        if gain is None:
            first, first_values = average, values
            continue
        assert points((float(average) - float(first)) / 100) == gain, model
        if points((fmean(values) - fmean(first_values)) / 100) != gain:
            others.add(model)
    assert others == GAINS_OF_ROUNDED_AVERAGES


# Math-P-Hard, Math-P-Simple, Avg; GSMIR, MMLU-P, OBook-P, Avg
TABLE_2 = {
    "Qwen3-4B-Instruct": (73.9, 93.9, "83.9", 2.96, 9.39, 19.03, "10.46"),
    "Scaf-GRPO": (71.7, 93.9, "82.8", 3.57, 9.12, 19.03, "10.57"),
    "SAGE": (76.3, 95.7, "86.0", 4.34, 7.54, 19.62, "10.50"),
    "InT": (76.1, 94.8, "85.4", 7.39, 8.25, 17.92, "11.19"),
    "Seirênes": (79.1, 97.4, "88.2", 3.05, 4.91, 16.21, "8.06"),
}


@pytest.mark.parametrize("model", TABLE_2)
def test_table_2_averages(model):
    """Two averages end in an exact half, 85.45 and 88.25: the paper prints the even digit, and so do our tables."""
    hard, simple, accuracy, *losses, average = TABLE_2[model]
    suite = suite_of("perturbed", [result("h", hard / 100), result("s", simple / 100)], seed=0)
    nothing = Estimate(0.0, 0.0, 0.0)
    pairs = tuple(Degradation(f"p{n}", 0.0, 0.0, 1, replace(nothing, mean=loss / 100)) for n, loss in enumerate(losses))
    table = results_markdown(Results({}, (suite,), pairs))
    assert f"| {percent(hard / 100)} | {percent(simple / 100)} | {accuracy} (" in table
    assert f"| Avg |  |  |  | +{average} |" in table


def test_degradation_is_clean_minus_perturbed_in_points():
    clean, perturbed = result("gsmir_clean", 0.95), result("gsmir", 0.92)
    pair = degradation_of(perturbed, clean, seed=0)
    assert f"{100 * pair.difference.mean:.2f}" == "3.00"


# Table 3, Seirênes: 28,592 rollouts, that is 3,574 questions × 8
def test_table_3_is_read_off_a_histogram():
    """93.0 % all right, 5.8 % one wrong; the rest (1.2 %) right 4 to 6 times: mean@8 98.9 %, none below 4/8."""
    right = [8] * 3324 + [7] * 207 + [6] * 30 + [5] * 10 + [4] * 3
    row = audit_row("this run", [count / 8 for count in right], 8)
    assert "| this run | 28,592 | 98.9% | 100.0% | 93.0% | 5.8% | 0.0% |" in audit_markdown([row], None)
    assert row.histogram == (0, 0, 0, 0, 3, 10, 30, 207, 3324)


def write_metrics(path: Path, deltas: list[float]) -> Path:
    rows = [{"step": step, "attack/delta": delta} for step, delta in enumerate(deltas, start=1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("tail", "early", "late", "total", "printed"),
    [
        ((75, 37, 13), 9, 4, 13, ["36.4", "18.0", "6.3", "8.7", "3.9"]),
        ((62, 23, 5), 4, 1, 5, ["30.1", "11.2", "2.4", "3.9", "1.0"]),
        ((115, 71, 40), 19, 21, 40, ["55.8", "34.5", "19.4", "18.4", "20.4"]),
    ],
    ids=["static self", "static strong", "Seirênes"],
)
def test_table_4_shares_are_counts_of_206_steps(tmp_path, tail, early, late, total, printed):
    """The counts that give every printed share of a row; the order within the halves is free."""
    weak = [0.045] * (tail[1] - tail[2]) + [0.035] * (tail[0] - tail[1]) + [0.0] * (206 - tail[0])
    Random(0).shuffle(weak)
    first = [0.06] * early + weak[: 103 - early]
    second = [0.06] * late + weak[103 - early :]
    strength = read_attack_statistics(write_metrics(tmp_path / "metrics.jsonl", first + second))
    assert strength is not None and strength.strong_steps == total == early + late
    assert [percent(share) for share in (*strength.tail, strength.early, strength.late)] == printed
    assert f"| {' | '.join(printed)} |" in strength_markdown(strength)


# Clean, hinted and their difference: AIME24, AIME25, AIME26, IMO-Bench, Math-P-Hard, MINERVA, Olympiad; printed overall
TABLE_5 = {
    "GPT-5.1": (
        [43.3, 36.7, 43.3, 15.3, 65.2, 21.3, 52.2],
        [36.7, 30.0, 40.0, 13.3, 60.6, 19.9, 49.2],
        ["-6.6", "-6.7", "-3.3", "-2.0", "-4.6", "-1.4", "-3.0"],
        ["39.6", "35.7", "-3.9"],
    ),
    "Gemini 3 Flash": (
        [90.0, 90.0, 93.3, 67.2, 82.6, 43.8, 81.8],
        [84.4, 86.7, 83.3, 54.3, 80.0, 42.2, 81.2],
        ["-5.6", "-3.3", "-10.0", "-12.9", "-2.6", "-1.6", "-0.6"],
        ["78.4", "73.2", "-5.2"],
    ),
}


@pytest.mark.parametrize("model", TABLE_5)
def test_table_5_overall(model):
    clean, hinted, changes, printed = TABLE_5[model]
    nothing = Estimate(0.0, 0.0, 0.0)
    results = [AttackResult("b", 3, 30, 0, c / 100, h / 100, nothing) for c, h in zip(clean, hinted, strict=True)]
    before, after, change = overall(results)
    assert [percent(before), percent(after), points(change)] == printed
    table = attack_markdown(results, None)
    assert table.splitlines()[0].endswith("| Overall |") and f"| {printed[2]} |" in table
    assert [points((h - c) / 100) for c, h in zip(clean, hinted, strict=True)] == changes


def test_the_suite_and_its_numbers_of_samples_are_the_papers():
    config = load_config(REPOSITORY / "yaml_configs" / "paper_evaluation.yaml")
    evaluation = config.evaluation
    assert (evaluation.temperature, evaluation.top_p) == (1.0, 1.0)
    samples = {name: evaluation.benchmarks[name].samples for name in evaluation.suites["paper"]}
    assert samples == {
        "aime24": 32,
        "aime25": 32,
        "aime26": 32,
        "imo_bench": 4,
        "minerva": 4,
        "olympiad": 4,
        "hmmt26": 32,
    }
    assert load_config(REPOSITORY / "yaml_configs" / "attack.yaml").evaluation.attack.samples == 3


@pytest.mark.parametrize(
    ("value", "printed"), [(85.45, "85.4"), (88.25, "88.2"), (0.35, "0.4"), (100 * 0.8545, "85.4")]
)
def test_an_exact_half_goes_to_the_even_digit(value, printed):
    """However the binary fraction lies: f"{85.45:.1f}" is 85.5."""
    assert decimals(value) == printed
    assert decimals(-value, sign="+") == f"-{printed}"
    assert decimals(value + 1e-6) == f"{value + 1e-6:.1f}"
