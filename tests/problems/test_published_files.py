"""The readers over real published files, where a checkout has them beside it."""

import pyarrow.parquet
import pytest

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.problems.formats import DAPO_WRAPPING
from megatron_seirenes.problems.gold import without_wrapping
from megatron_seirenes.problems.readers import read_problems

# file, format, problems, then three golden problems: position, id within the file, the end of the question, the answer
FILES = [
    (
        *("gsm8k-train.jsonl", "gsm8k", 7473),
        (1, "2", "How much did she earn?", "10"),
        (3736, "3737", "of the pizza, how many calories does he eat?", "330"),
        (7472, "7473", "What would be their average age in 15 years?", "50"),
    ),
    (
        *("gsm8k-test.jsonl", "gsm8k", 1319),
        (0, "1", "every day at the farmers' market?", "18"),
        (659, "660", "of 1/5 pound almonds and 1/3 pound walnuts?", "3"),
        (1318, "1319", "how many slices can each of them have?", "14"),
    ),
    (
        *("svamp.jsonl", "svamp", 1000),
        (0, "chal-777", "into 93 groups How big is each group of bananas?", "145"),
        (500, "chal-928", "did the grasshopper jump than the mouse?", "41"),
        (999, "chal-655", "How many bottle caps did danny have at first?", "91"),
    ),
    (
        *("aime-2024.jsonl", "aime", 30),
        (0, "60", "spent in the coffee shop.", "204"),
        (15, "75", "who own all four of these things.", "73"),
        (29, "89", "one or more of the previous two conditions.", "902"),
    ),
    (
        *("aime-2024-verl.parquet", "verl", 30),
        (0, "2", "where $z$ is a complex number with $|z|=4$.", "540"),
        (15, "7", "relatively prime positive integers. Find $m+n$.", "33"),
        (29, "1", "relatively prime positive integers. Find $m+n$.", "116"),
    ),
    (
        *("minerva-math.jsonl", "minerva_math", 272),
        (0, "0", "observation is $45^{\\prime \\prime}$.", "1.6"),
        (136, "136", "answer as 'xen' representing $x * 10^n$)", "1e11"),
        (271, "271", "Hamiltonian, and round to one decimal place.", "10.1"),
    ),
    (
        *("imo-answerbench-v2.csv", "imo_answerbench", 400),
        (3, "imo-bench-algebra-004", "(C(t-1)^2+t)^{2^{u-1}}$.", "2^{u-2}"),
        (200, "imo-bench-geometry-001", "is possible. Find the supremum of $S$.", r"\frac{3}{2}"),
        (399, "imo-bench-number_theory-100", "Evaluate $\\sum_{i=1}^k (m_i + n_i + p_i)$.", "20"),
    ),
    (
        *("mmlu-stem.jsonl", "mmlu", 3018),
        (0, "1", "D. increase the mortality rate", "C"),
        (1509, "1510", "C. resonance structures\nD. polar molecules", "B"),
        (3017, "3018", "A. 80%\nB. 90%\nC. 98%\nD. 99.80%", "D"),
    ),
]


@pytest.mark.parametrize("row", FILES, ids=lambda row: row[0])
def test_row_counts_and_three_golden_rows(shared_data, row):
    file, form, count, *golden = row
    problems = read_problems(ProblemSource(path=str(shared_data / file), format=form))
    assert len({problem.id for problem in problems}) == len(problems) == count
    for position, id_, end, answer in golden:
        problem = problems[position]
        assert (problem.id, problem.answer) == (f"{file.partition('.')[0]}/{id_}", answer)
        assert problem.question.endswith(end)


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
