"""Each format on small files with the published columns: golden rows, rows left out, and what malformed rows say.

The rows have the columns and types of the publications (hub data cards, original repositories); the questions are ours.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems import hub
from megatron_seirenes.problems.formats import DAPO_WRAPPING, FORMATS
from megatron_seirenes.problems.readers import read_problems

Golden = tuple[str, str, str]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def olympiad(id_: int, answers: list[str] | None, several: bool = False, **more: Any) -> dict[str, Any]:
    row = {"id": id_, "question": f"Question {id_}.", "solution": ["So."], "final_answer": answers, "context": None}
    row |= {"image_1": None, "modality": "Text-only", "difficulty": "Competition", "is_multiple_answer": several}
    row |= {"unit": None, "answer_type": "Numerical", "error": None, "question_type": "Open-ended"}
    return row | {"subfield": "Algebra", "subject": "Math", "language": "English"} | more


def openr1(id_: str, answer: str, question_type: str = "math-word-problem") -> dict[str, Any]:
    row = {"problem": f"Problem {id_}.", "solution": "…", "answer": answer, "problem_type": "Algebra"}
    row |= {"question_type": question_type, "source": "olympiads", "uuid": id_, "is_reasoning_complete": [True]}
    return row | {"generations": ["…"], "correctness_math_verify": [True], "finish_reasons": None}


def gsmir(ans: str, irrelevant: str) -> dict[str, Any]:
    clean = "Ann has 3 boxes of 4 pens. "
    row = {"original_question": clean, "context": f"{clean}{irrelevant}How many pens are there?", "ans": ans}
    row |= {"n_steps": 1, "question": "Does the question contain any irrelevant information?", "answer": "Yes."}
    return row | {"con": clean + irrelevant, "que": "How many pens are there?"}


def dapo(question: str, gold: str, index: str) -> dict[str, Any]:
    prompt = [{"role": "user", "content": question.join(DAPO_WRAPPING)}]
    row = {"data_source": "math_dapo", "prompt": prompt, "ability": "MATH"}
    return row | {
        "reward_model": {"ground_truth": gold, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


CHOICES = ["a metal", "a gas", "a rock", "a fish"]
LETTERED = "A. a metal\nB. a gas\nC. a rock\nD. a fish"

# case, format, rows, golden (own id, question, answer)
PUBLISHED: list[tuple[str, str, list[dict[str, Any]], list[Golden]]] = [
    (
        "gsm8k",
        "gsm8k",
        [
            {"question": "Add.", "answer": "2+3=<<2+3=5>>5\n#### 5"},
            {"question": "Many.", "answer": "…\n#### 1,250"},
            {"question": "Less.", "answer": "#### -3"},
        ],
        [("1", "Add.", "5"), ("2", "Many.", "1250"), ("3", "Less.", "-3")],
    ),
    (
        "svamp",
        "svamp",
        [
            {"ID": "chal-1", "Body": "Ann has 3 pens ", "Question": "How many?", "Answer": 3.0, "Type": "Subtraction"},
            {"ID": "chal-2", "Body": "A half", "Question": "What?", "Answer": 0.5, "Equation": "( 1 / 2 )"},
            {"ID": "chal-3", "Body": "Sum", "Question": "What?", "Answer": "12.0"},
        ],
        [
            ("chal-1", "Ann has 3 pens How many?", "3"),
            ("chal-2", "A half What?", "0.5"),
            ("chal-3", "Sum What?", "12.0"),
        ],
    ),
    (
        "MATH, with and without the answer column of MATH-500",
        "math",
        [
            {"problem": "P1", "level": "Level 5", "type": "Algebra", "solution": "so \\boxed{\\frac{1}{2}}"},
            {"problem": "P2", "solution": "\\boxed{1} then \\boxed{{2}}", "answer": "3", "unique_id": "test/a/2.json"},
            {"problem": "P3", "solution": "\\boxed{x}", "answer": None},
        ],
        [("1", "P1", "\\frac{1}{2}"), ("test/a/2.json", "P2", "3"), ("3", "P3", "x")],
    ),
    (
        "MATH-Perturb",
        "math_perturb",
        [
            {"problem_id": 7, "problem": "P7", "answer": 42, "level": "Level 5", "original_split": "test"},
            {"problem_id": 8, "problem": "P8", "answer": 0.5, "type": "Algebra"},
            {"problem_id": 9, "problem": "P9", "answer": "\\frac{3}{4}"},
        ],
        [("7", "P7", "42"), ("8", "P8", "0.5"), ("9", "P9", "\\frac{3}{4}")],
    ),
    (
        "AIME 2024, four publications",
        "aime",
        [
            {"id": 60, "problem": "P", "solution": "…", "answer": "025", "url": "u", "year": "2024"},
            {"ID": "2024-I-4", "Problem": "Q", "Solution": "…", "Answer": 116},
            {"id": "3", "problem": "R", "solution": "\\boxed{204}", "url": "u"},
        ],
        [("60", "P", "25"), ("2024-I-4", "Q", "116"), ("3", "R", "204")],
    ),
    (
        "AIME 2025 and 2026",
        "aime",
        [
            {"question": "P", "answer": "70"},
            {"problem_idx": 2, "problem": "Q", "answer": 277, "problem_type": ["Algebra"]},
            {"id": "I-3", "problem": "R", "answer": "016"},
        ],
        [("1", "P", "70"), ("2", "Q", "277"), ("I-3", "R", "16")],
    ),
    (
        "AMC",
        "amc",
        [
            {"id": 0, "problem": "P", "answer": 142.0, "url": "u"},
            {"id": 1, "question": "Q", "answer": "27"},
            {"id": 2, "problem": "R", "answer": 1.5},
        ],
        [("0", "P", "142"), ("1", "Q", "27"), ("2", "R", "1.5")],
    ),
    (
        "Minerva",
        "minerva_math",
        [
            {"idx": 0, "problem": "P", "solution": "\\boxed{1.6}", "type": "Astronomy"},
            {"question": "Q", "answer": "4.49e33"},
            {"problem": "R", "solution": "\\boxed{y(t)=2 e^{t}}"},
        ],
        [("0", "P", "1.6"), ("2", "Q", "4.49e33"), ("3", "R", "y(t)=2 e^{t}")],
    ),
    (
        "HMMT",
        "hmmt",
        [
            {"problem_idx": 1, "problem": "P", "answer": "103", "problem_type": ["Number Theory"]},
            {"problem_idx": 2, "problem": "Q", "answer": "$\\frac{448}{3}$", "problem_type": []},
            {"problem_idx": 3, "problem": "R", "answer": "1, -2"},
        ],
        [("1", "P", "103"), ("2", "Q", "\\frac{448}{3}"), ("3", "R", "1, -2")],
    ),
    (
        "IMO-AnswerBench",
        "imo_answerbench",
        [
            {"Problem ID": "imo-bench-algebra-001", "Problem": "P", "Short Answer": "3", "Category": "Algebra"},
            {"Problem ID": "imo-bench-algebra-002", "Problem": "Q", "Short Answer": "$2^{u-2}$", "Source": "S"},
            {"Problem ID": "imo-bench-geometry-001", "Problem": "R", "Short Answer": "$1$ and $2$"},
        ],
        [
            ("imo-bench-algebra-001", "P", "3"),
            ("imo-bench-algebra-002", "Q", "2^{u-2}"),
            ("imo-bench-geometry-001", "R", "$1$ and $2$"),
        ],
    ),
    (
        "OlympiadBench: lists, several answers, context; images and proofs are left out",
        "olympiadbench",
        [
            olympiad(1, ["$2$"]),
            olympiad(2, ["$1$", "$-3$"], several=True, unit="cm", error="1e-1"),
            olympiad(3, ["9", "$9.0$"], context="Use the lemma."),
            olympiad(4, ["1"], modality="Multimodal"),
            olympiad(5, None),
        ],
        [("1", "Question 1.", "2"), ("2", "Question 2.", "1, -3"), ("3", "Use the lemma.\n\nQuestion 3.", "9")],
    ),
    (
        "OpenR1-Math; proofs are left out",
        "openr1_math",
        [openr1("a", "\\frac{1}{3}"), openr1("b", "B", "MCQ"), openr1("c", "proof", "proof"), openr1("d", "12")],
        [("a", "Problem a.", "\\frac{1}{3}"), ("b", "Problem b.", "B"), ("d", "Problem d.", "12")],
    ),
    (
        "DAPO-Math-17K, every row a hundred times",
        "verl",
        [dapo("P", "34", "i1"), dapo("Q", "5", "i2"), dapo("R", "-1", "i3")] * 100,
        [("i1", "P", "34"), ("i2", "Q", "5"), ("i3", "R", "-1")],
    ),
    (
        "DAPO-Math-17K, processed",
        "verl",
        [
            {"prompt": "P", "solution": "34", "reward_model": {"ground_truth": "34"}, "extra_info": {"index": "i1"}},
            {"prompt": "Q", "solution": "5", "reward_model": {"ground_truth": "5"}, "extra_info": {"index": "i2"}},
        ],
        [("i1", "P", "34"), ("i2", "Q", "5")],
    ),
    (
        "GSMIR",
        "gsmir",
        [gsmir("12", "He saw 7 cars."), gsmir("12", "It rained twice.")],
        [
            ("1", "Ann has 3 boxes of 4 pens. He saw 7 cars.How many pens are there?", "12"),
            ("2", "Ann has 3 boxes of 4 pens. It rained twice.How many pens are there?", "12"),
        ],
    ),
    (
        "GSMIR without the irrelevant sentence",
        "gsmir_clean",
        [gsmir("12", "He saw 7 cars.")],
        [("1", "Ann has 3 boxes of 4 pens. How many pens are there?", "12")],
    ),
    (
        "MMLU",
        "mmlu",
        [
            {"question": "Iron is", "subject": "chemistry", "choices": CHOICES, "answer": 0},
            {"question": "Neon is ", "subject": "chemistry", "choices": CHOICES, "answer": "B"},
            {"question": "Basalt is", "subject": "geology", "choices": CHOICES, "answer": "2"},
        ],
        [
            ("1", f"Iron is\n\n{LETTERED}", "A"),
            ("2", f"Neon is\n\n{LETTERED}", "B"),
            ("3", f"Basalt is\n\n{LETTERED}", "C"),
        ],
    ),
    (
        "OpenBookQA, of the hub and the original",
        "openbookqa",
        [
            {
                "id": "7-980",
                "question_stem": "Iron is",
                "choices": {"text": CHOICES, "label": list("ABCD")},
                "answerKey": "A",
            },
            {
                "id": "7-981",
                "question": {
                    "stem": "Trout is",
                    "choices": [{"text": text, "label": label} for text, label in zip(CHOICES, "ABCD", strict=True)],
                },
                "answerKey": "D",
            },
        ],
        [("7-980", f"Iron is\n\n{LETTERED}", "A"), ("7-981", f"Trout is\n\n{LETTERED}", "D")],
    ),
]


@pytest.mark.parametrize(("form", "rows", "golden"), [case[1:] for case in PUBLISHED], ids=[c[0] for c in PUBLISHED])
def test_golden_rows(tmp_path, form, rows, golden):
    problems = read_problems(ProblemSource(path=write(tmp_path / "f.jsonl", rows), format=form))
    assert [(p.id.removeprefix("f/"), p.question, p.answer) for p in problems] == golden
    assert {p.source for p in problems} == {"f"}


def test_every_format_has_a_golden_file():
    assert {case[1] for case in PUBLISHED} | {"plain"} == set(FORMATS)


@pytest.mark.parametrize("case", ["MMLU", "OlympiadBench", "DAPO-Math-17K, every", "OpenR1", "HMMT"])
def test_parquet_gives_the_same_as_jsonl(tmp_path, case):
    _, form, rows, golden = next(entry for entry in PUBLISHED if entry[0].startswith(case))
    if form == "mmlu":
        rows = [
            row | {"answer": "ABCD".index(str(key)) if str(key) in "ABCD" else int(key)}
            for row in rows
            for key in [row["answer"]]
        ]
    problems = read_problems(ProblemSource(path=write(tmp_path / "f.parquet", rows), format=form))
    assert [(p.id.removeprefix("f/"), p.question, p.answer) for p in problems] == golden


def test_rows_left_out_are_told(tmp_path, caplog):
    rows = [olympiad(1, ["2"]), olympiad(4, ["1"], modality="Multimodal"), olympiad(5, None)]
    with caplog.at_level(logging.INFO):
        read_problems(ProblemSource(path=write(tmp_path / "f.jsonl", rows), format="olympiadbench"))
    assert "2 rows are no questions" in caplog.text
    assert "f.jsonl, row 2: it is about an image" in caplog.text
    assert "f.jsonl, row 3: it is a proof" in caplog.text


def test_what_judging_an_olympiad_answer_needs_is_kept(tmp_path):
    path = write(tmp_path / "f.jsonl", [olympiad(2, ["1", "2"], several=True, unit="cm", error="1e-1")])
    (problem,) = read_problems(ProblemSource(path=path, format="olympiadbench"))
    assert problem.meta["unit"] == "cm" and problem.meta["error"] == "1e-1" and problem.meta["is_multiple_answer"]


MALFORMED = [
    ("gsm8k", {"question": "Q", "answer": "5"}, "no #### in the answer"),
    ("svamp", {"ID": "c", "Body": "B", "Answer": 1.0}, "no column Question"),
    ("math", {"problem": "P", "solution": "no box"}, "no \\boxed{} in the solution"),
    ("math", {"problem": "P", "solution": "\\boxed{1"}, "never closes"),
    ("math", {"problem": "P"}, "no column solution or Solution"),
    ("math_perturb", {"problem": "P", "problem_id": 1}, "no column answer"),
    ("aime", {"answer": "1"}, "no column problem or question or Problem"),
    ("amc", {"problem": "P", "answer": None}, "empty answer"),
    ("hmmt", {"problem_idx": 1, "answer": "1"}, "no column problem"),
    ("imo_answerbench", {"Problem": "P"}, "no column Short Answer"),
    ("olympiadbench", olympiad(1, [3]), "a list of answers expected, [3] seen"),
    ("olympiadbench", olympiad(1, "3"), "a list of answers expected, '3' seen"),
    ("openr1_math", {"problem": "P", "uuid": "u"}, "no column answer"),
    ("gsmir", {"context": "", "ans": "1"}, "empty question"),
    ("gsmir_clean", {"original_question": "P", "ans": "1"}, "no column que"),
    ("mmlu", {"question": "Q", "choices": CHOICES, "answer": 26}, "choice 26 is outside A to Z"),
    (
        "mmlu",
        {"question": "Q", "choices": CHOICES, "answer": "yes"},
        "index or letter of a choice expected, 'yes' seen",
    ),
    ("mmlu", {"question": "Q", "choices": "abc", "answer": 0}, "a list of at least two choices expected, 'abc' seen"),
    (
        "openbookqa",
        {"question_stem": "Q", "choices": {"text": CHOICES, "label": list("ABCD")}, "answerKey": "E"},
        "none of",
    ),
    ("openbookqa", {"question_stem": "Q", "answerKey": "A"}, "no column choices"),
    ("verl", {"prompt": [{"role": "user", "content": "Q"}]}, "no column reward_model"),
]


@pytest.mark.parametrize(("form", "row", "seen"), MALFORMED)
def test_malformed_rows_are_named(tmp_path, form, row, seen):
    path = write(tmp_path / "f.jsonl", [row])
    with pytest.raises(DataError) as caught:
        read_problems(ProblemSource(path=path, format=form))
    assert f"{path}, row 1: " in str(caught.value)
    assert seen in str(caught.value)


def test_declared_choices_and_distractor(tmp_path):
    rows = [{"q": "Iron is", "options": CHOICES, "key": 0, "context": " Cooks use pans. "}]
    columns = {"question": "q", "choices": "options", "answer": "key", "distractor": "context"}
    (problem,) = read_problems(ProblemSource(path=write(tmp_path / "f.jsonl", rows), columns=columns))
    assert (problem.question, problem.answer) == (f"Iron is\n\n{LETTERED}", "A")
    assert problem.meta == {"distractor": "Cooks use pans."}


# -- containers


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"version": 1, "data": rows}])
def test_json_arrays(tmp_path, wrap):
    (tmp_path / "f.json").write_text(json.dumps(wrap([{"question": "Q", "answer": "1"}])))
    (problem,) = read_problems(ProblemSource(path=str(tmp_path / "f.json")))
    assert (problem.id, problem.answer) == ("f/1", "1")


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ("{}", "hold 0 arrays"),
        ("3", "an array of objects expected, int seen"),
        ("[1]", "a JSON object expected"),
        ("[", "cannot be read"),
    ],
)
def test_json_that_is_no_array(tmp_path, content, seen):
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(DataError, match=seen):
        read_problems(ProblemSource(path=str(tmp_path / "f.json")))


def hub_layout(folder: Path) -> Path:
    """A data set as the hub lays it out: shards of two splits, a card and small files."""
    (folder / "data").mkdir(parents=True)
    for split, count in (("train", 2), ("test", 1)):
        for shard in range(count):
            rows = [{"question": f"{split} {shard} {n}", "answer": str(n)} for n in range(2)]
            write(folder / "data" / f"{split}-{shard:05d}-of-{count:05d}.parquet", rows)
    (folder / "README.md").write_text("card")
    (folder / ".gitattributes").write_text("")
    return folder


def test_a_folder_needs_a_split_and_numbers_its_shards_through(tmp_path):
    folder = hub_layout(tmp_path / "set")
    with pytest.raises(DataError, match=r"several splits \(data/test, data/train\); choose one with `files`"):
        read_problems(ProblemSource(path=str(folder)))
    with pytest.raises(DataError, match="holds no file that matches"):
        read_problems(ProblemSource(path=str(folder), files="data/dev-*"))
    problems = read_problems(ProblemSource(path=str(folder), files="data/train-*"))
    assert [p.id for p in problems] == ["set/1", "set/2", "set/3", "set/4"]
    assert [p.question for p in problems] == ["train 0 0", "train 0 1", "train 1 0", "train 1 1"]


def test_a_saved_data_set_is_read(tmp_path):
    """What `Dataset.save_to_disk` leaves: Arrow's streaming format beside two small JSON files."""
    table = pyarrow.Table.from_pylist([{"question": "Q", "answer": "1"}])
    with pyarrow.ipc.new_stream(tmp_path / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / name).write_text("{}")
    (problem,) = read_problems(ProblemSource(path=str(tmp_path)))
    assert (problem.id, problem.question) == (f"{tmp_path.name}/1", "Q")


def test_a_hub_name_reads_what_the_hub_gives(tmp_path, monkeypatch):
    folder = hub_layout(tmp_path / "snapshot")
    asked = []

    def snapshot(name, **keywords):
        asked.append((name, keywords["revision"], keywords["allow_patterns"], keywords["repo_type"]))
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    source = ProblemSource(hub="owner/sums", revision="v2", files="data/test-*")
    assert [p.id for p in read_problems(source)] == ["sums/1", "sums/2"]
    assert asked == [("owner/sums", "v2", ["data/test-*"], "dataset")]


def test_a_hub_name_without_a_network_is_a_message(tmp_path, monkeypatch):
    def snapshot(name, **keywords):
        raise ConnectionError("no route")

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    with pytest.raises(
        DataError, match=r"owner/sums is not in the cache and cannot be fetched \(ConnectionError: no route\)"
    ):
        read_problems(ProblemSource(hub="owner/sums"))
