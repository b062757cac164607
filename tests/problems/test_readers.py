import json
import logging
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.formats import DAPO_WRAPPING
from megatron_seirenes.problems.readers import read_all, read_problems


def jsonl(path: Path, *rows: object) -> str:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return str(path)


def refusal(source: ProblemSource, bad_rows: str = "error") -> str:
    with pytest.raises(DataError) as caught:
        read_problems(source, bad_rows)
    return str(caught.value)


def test_declared_columns(tmp_path):
    path = jsonl(
        tmp_path / "mine.jsonl", {"q": " 1 + 1 ? ", "a": 2, "key": "x"}, {"q": "2 / 4 ?", "a": 0.5, "key": "y"}
    )
    source = ProblemSource(path=path, columns={"id": "key", "question": "q", "answer": "a"})
    first, second = read_problems(source)
    assert (first.id, first.question, first.answer, first.source) == ("mine/x", "1 + 1 ?", "2", "mine")
    assert (second.id, second.answer) == ("mine/y", "0.5")


def test_without_declaration_the_plain_columns_are_read_and_rows_are_lines(tmp_path):
    path = jsonl(tmp_path / "mine.jsonl", {"question": "a", "answer": "1"}, "", {"problem": "b", "answer": "2"})
    assert [problem.id for problem in read_problems(ProblemSource(path=path))] == ["mine/1", "mine/3"]


def test_the_three_containers_agree(tmp_path):
    rows = [{"question": f"what, is {n}?\nsay", "answer": str(n)} for n in range(5)]
    quoted = "".join(f'"{row["question"]}",{row["answer"]}\n' for row in rows)
    (tmp_path / "p.csv").write_text("\ufeffquestion,answer\n" + quoted, encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet", row_group_size=2)
    jsonl(tmp_path / "p.jsonl", *rows)
    read = [
        read_problems(ProblemSource(path=str(tmp_path / f"p{suffix}"))) for suffix in (".jsonl", ".csv", ".parquet")
    ]
    assert read[0] == read[1] == read[2]
    assert len(read[0]) == 5


def test_count_takes_the_first(tmp_path):
    path = jsonl(tmp_path / "p.jsonl", *({"question": f"q{n}", "answer": "1"} for n in range(5)))
    assert [problem.id for problem in read_problems(ProblemSource(path=path, count=2))] == ["p/1", "p/2"]
    assert "count is 6, but it holds only 5" in refusal(ProblemSource(path=path, count=6))


def test_what_a_user_may_get_wrong(tmp_path):
    path = jsonl(tmp_path / "p.jsonl", {"question": "q", "answer": "1"})
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "p.txt").write_text("q")
    (tmp_path / "p.parquet").write_text("no parquet")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xe9", "answer": "1"}')
    assert "missing.jsonl: no such file" in refusal(ProblemSource(path=str(tmp_path / "missing.jsonl")))
    assert "empty.jsonl: holds no problems" in refusal(ProblemSource(path=str(tmp_path / "empty.jsonl")))
    assert "unknown file type '.txt'; known: .jsonl, .json, .csv, .parquet, .arrow" in refusal(
        ProblemSource(path=str(tmp_path / "p.txt"))
    )
    assert "p.parquet: cannot be read" in refusal(ProblemSource(path=str(tmp_path / "p.parquet")))
    assert "latin.jsonl: cannot be read" in refusal(ProblemSource(path=str(tmp_path / "latin.jsonl")))
    assert "holds several splits (empty, latin, p)" in refusal(ProblemSource(path=str(tmp_path)))
    assert "`files` chooses files of a folder" in refusal(ProblemSource(path=path, files="*.jsonl"))
    assert "unknown format 'gsm'; known: plain, gsm8k" in refusal(ProblemSource(path=path, format="gsm"))
    assert "not both" in refusal(ProblemSource(path=path, format="gsm8k", columns={"question": "q"}))
    assert "unknown columns gold; allowed" in refusal(ProblemSource(path=path, columns={"gold": "a"}))
    assert "needs `path`, `hub` or `task`" in refusal(ProblemSource())
    assert "needs `path`, `hub` or `task`" in refusal(ProblemSource(path=path, task="chain_arithmetic"))
    assert "`count` is missing" in refusal(ProblemSource(task="chain_arithmetic"))
    assert "held_out" in refusal(ProblemSource(path=path, split="held_out"))


BAD_ROWS = [
    ({"question": "q"}, "no column answer (columns: question)"),
    ({"answer": "1"}, "no column question or problem (columns: answer)"),
    ({"question": "q", "answer": None}, "empty answer"),
    ({"question": " ", "answer": ""}, "empty question and answer"),
    ({"question": "q", "answer": ["1"]}, "text or a number expected, list seen"),
    ({"question": "q", "answer": True}, "text or a number expected, bool seen"),
    ('{"question": "q", "answer": NaN}', "empty answer"),
    ("{no json", "not JSON"),
    ('["q", "1"]', "a JSON object expected, list seen"),
]


@pytest.mark.parametrize(("row", "seen"), BAD_ROWS)
def test_a_bad_row_is_named_with_what_was_seen(tmp_path, row, seen):
    path = jsonl(tmp_path / "p.jsonl", {"question": "q", "answer": "1"}, row)
    message = refusal(ProblemSource(path=path))
    assert f"p.jsonl, row 2: {seen}" in message or f"p.jsonl, row 2: not in format plain: {seen}" in message
    assert "problems.bad_rows=skip" in message


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path, caplog):
    rows = [row for row, _ in BAD_ROWS]
    path = jsonl(tmp_path / "p.jsonl", *rows, {"question": "q", "answer": "1"})
    with caplog.at_level(logging.WARNING):
        problems = read_problems(ProblemSource(path=path), "skip")
    assert [problem.id for problem in problems] == [f"p/{len(rows) + 1}"]
    assert f"{len(rows)} bad rows skipped" in caplog.text
    assert "and 4 more" in caplog.text
    jsonl(tmp_path / "p.jsonl", *rows)
    assert "holds no usable problems" in refusal(ProblemSource(path=path), "skip")


def test_equal_ids_are_named(tmp_path):
    rows = [{"id": 7, "question": "q", "answer": "1"}, {"id": 7, "question": "q", "answer": "1"}]
    path = jsonl(tmp_path / "p.jsonl", *rows)
    assert "p.jsonl, row 2: id p/7 was already used in " in refusal(ProblemSource(path=path))


def test_several_sources(tmp_path):
    path = jsonl(tmp_path / "p.jsonl", {"question": "q", "answer": "1"})
    task = ProblemSource(task="chain_arithmetic", count=3, split="held_out", seed=2)
    assert [problem.source for problem in read_all([ProblemSource(path=path), task])] == ["p"] + 3 * [
        "chain_arithmetic"
    ]
    with pytest.raises(DataError, match=r"p\.jsonl: problem id p/1 was already read"):
        read_all([ProblemSource(path=path), ProblemSource(path=path)])


def verl_row(question: str, index: int, gold: str = "3", **extra: str) -> dict[str, object]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": question}],
        "reward_model": {"ground_truth": gold, "style": "rule"},
        "extra_info": {"index": index, **extra},
    }


def test_verl_rows_lose_their_wrapping_and_repetition(tmp_path):
    before, after = DAPO_WRAPPING
    rows = [verl_row(f"{before}What?{after}", 1), verl_row(f"{before}What?{after}", 1), verl_row("Bare?", 2)]
    path = jsonl(tmp_path / "v.jsonl", *rows)
    problems = read_problems(ProblemSource(path=path, format="verl"))
    assert [(problem.id, problem.question, problem.answer) for problem in problems] == [
        ("v/1", "What?", "3"),
        ("v/2", "Bare?", "3"),
    ]
    jsonl(tmp_path / "v.jsonl", verl_row("What?", 1), verl_row("What?", 1, gold="4"))
    assert "v.jsonl, row 2: id v/1 was already used in " in refusal(ProblemSource(path=path, format="verl"))
    jsonl(tmp_path / "v.jsonl", {"prompt": [{"role": "system", "content": "x"}], "reward_model": {"ground_truth": "1"}})
    assert "row 1: not in format verl: the prompt has no user message" in refusal(
        ProblemSource(path=path, format="verl")
    )
