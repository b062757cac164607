"""The readers over real published files, where a checkout has them beside it."""

import pyarrow.parquet
import pytest

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.problems.formats import DAPO_WRAPPING
from megatron_seirenes.problems.gold import without_wrapping
from megatron_seirenes.problems.readers import read_problems

# file, format, problems, then one golden problem: its position, id, the end of its question, its answer
FILES = [
    ("gsm8k-train.jsonl", "gsm8k", 7473, 1, "gsm8k-train/2", "How much did she earn?", "10"),
    ("gsm8k-test.jsonl", "gsm8k", 1319, 0, "gsm8k-test/1", "every day at the farmers' market?", "18"),
    ("svamp.jsonl", "svamp", 1000, 0, "svamp/chal-777", "into 93 groups How big is each group of bananas?", "145"),
    ("aime-2024.jsonl", "aime", 30, 0, "aime-2024/60", "spent in the coffee shop.", "204"),
    ("aime-2024-verl.parquet", "verl", 30, 0, "aime-2024-verl/2", "where $z$ is a complex number with $|z|=4$.", "540"),
    ("minerva-math.jsonl", "minerva_math", 272, 0, "minerva-math/0", "observation is $45^{\\prime \\prime}$.", "1.6"),
    (
        "imo-answerbench-v2.csv",
        "imo_answerbench",
        400,
        3,
        "imo-answerbench-v2/imo-bench-algebra-004",
        "(C(t-1)^2+t)^{2^{u-1}}$.",
        "2^{u-2}",
    ),
    ("mmlu-stem.jsonl", "mmlu", 3018, 0, "mmlu-stem/1", "D. increase the mortality rate", "C"),
]


@pytest.mark.parametrize(
    ("file", "form", "count", "position", "id_", "end", "answer"), FILES, ids=lambda value: str(value)
)
def test_row_counts_and_golden_rows(shared_data, file, form, count, position, id_, end, answer):
    problems = read_problems(ProblemSource(path=str(shared_data / file), format=form))
    assert len({problem.id for problem in problems}) == count
    golden = problems[position]
    assert (golden.id, golden.answer) == (id_, answer)
    assert golden.question.endswith(end)


def test_gsm8k_answers_are_numbers_without_separators(shared_data):
    problems = read_problems(ProblemSource(path=str(shared_data / "gsm8k-train.jsonl"), format="gsm8k"))
    assert all(float(problem.answer) is not None for problem in problems)


def test_both_publications_of_aime_2024_agree(shared_data):
    plain = read_problems(ProblemSource(path=str(shared_data / "aime-2024.jsonl"), format="aime"))
    verl = read_problems(ProblemSource(path=str(shared_data / "aime-2024-verl.parquet"), format="verl"))
    assert sorted(problem.answer.lstrip("0") for problem in verl) == sorted(problem.answer for problem in plain)


def test_the_wrapping_that_is_taken_off_is_the_published_one(shared_data):
    for row in pyarrow.parquet.read_table(shared_data / "aime-2024-verl.parquet").to_pylist():
        unwrapped = without_wrapping(row["prompt"][0]["content"], (DAPO_WRAPPING,))
        assert unwrapped == row["extra_info"]["raw_problem"].strip()
