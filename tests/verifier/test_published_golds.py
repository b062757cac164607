r"""Published golds: each boxed is its own right answer, and the next question's gold is wrong unless it is the same."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest

from megatron_seirenes.config.schema import VerifierSection
from megatron_seirenes.verifier.decision import decide
from megatron_seirenes.verifier.extraction import last_box
from megatron_seirenes.verifier.judge import judge_pairs
from megatron_seirenes.verifier.normalisation import normalise
from megatron_seirenes.verifier.options import Options

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the published files are not here")


def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def golds_of(benchmark):
    match benchmark:
        case "gsm8k":
            return [
                row["answer"].split("####")[1].strip()
                for part in ("train", "test")
                for row in rows(f"gsm8k-{part}.jsonl")
            ]
        case "svamp":
            return [str(row["Answer"]) for row in rows("svamp.jsonl")]
        case "aime-2024":
            return [row["answer"] for row in rows("aime-2024.jsonl")]
        case "minerva":
            return [last_box(row["solution"]) for row in rows("minerva-math.jsonl")]
        case "mmlu-stem":
            return ["ABCD"[row["answer"]] for row in rows("mmlu-stem.jsonl")]
    with (DATA / "imo-answerbench-v2.csv").open(encoding="utf-8", newline="") as file:
        return [row["Short Answer"] for row in csv.DictReader(file)]


BENCHMARKS = ["gsm8k", "svamp", "aime-2024", "minerva", "mmlu-stem", "imo"]


def dressed(gold):
    """The same gold as a model would write it: in a sentence, in dollars, with thin spaces and brackets that size."""
    return rf"Therefore, the answer is $\boxed{{ \displaystyle {gold} \, }}$. Done."


def plainly_equal(one, other):
    """Equal by what is written: the same text but for spaces, or the same decimal numeral."""
    if normalise(one) == normalise(other):
        return True
    try:
        return float(one.replace(",", "")) == float(other.replace(",", ""))
    except ValueError:
        return False


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_gold_is_its_own_answer(benchmark):
    golds = golds_of(benchmark)
    assert len(golds) >= 30
    settings = VerifierSection()
    verdicts = list(judge_pairs([(gold, dressed(gold)) for gold in golds], settings))
    refused = [(gold, verdict) for gold, verdict in zip(golds, verdicts, strict=True) if not verdict.correct]
    assert refused == []


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_next_gold_is_wrong_unless_it_is_the_same(benchmark):
    golds = golds_of(benchmark)
    surprises = [
        (gold, other)
        for gold, other in pairwise(golds)
        if (decide(gold, other, Options()) == "match") != plainly_equal(gold, other)
    ]
    assert surprises == []


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_changed_numeral_is_a_wrong_answer(benchmark):
    """Every gold with its last digit moved by one."""
    changed = []
    for gold in golds_of(benchmark):
        place = max((place for place, character in enumerate(gold) if character in "0123456789"), default=None)
        if place is not None:
            changed.append((gold, gold[:place] + str((int(gold[place]) + 1) % 10) + gold[place + 1 :]))
    assert [pair for pair in changed if decide(*pair, Options()) == "match"] == []
