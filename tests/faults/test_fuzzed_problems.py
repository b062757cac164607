"""Three hundred broken problem files of every kind: problems, or a DataError that names the file; nothing else."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_seirenes.config.schema import ProblemSource
from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.formats import FORMATS
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.problems.supervised import read_records

pytestmark = pytest.mark.faults

ROWS = [
    {"id": f"q{i}", "question": f"What is {i} + {i}?", "answer": str(2 * i), "problem": "p", "solution": "\\boxed{1}"}
    for i in range(6)
]


def as_csv() -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


def as_table(kind: str) -> bytes:
    table, sink = pyarrow.Table.from_pylist(ROWS), io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, sink)
    else:
        with pyarrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return sink.getvalue()


WHOLE = {
    ".jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    ".json": json.dumps(ROWS).encode(),
    ".csv": as_csv(),
    ".parquet": as_table("parquet"),
    ".arrow": as_table("arrow"),
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def broken_bytes(draw: st.DrawFn) -> tuple[str, bytes]:
    suffix = draw(st.sampled_from(sorted(WHOLE)))
    content = WHOLE[suffix]
    for _ in range(draw(st.integers(1, 5))):
        place, length = draw(st.integers(0, len(content))), draw(st.integers(0, 60))
        put = draw(st.sampled_from([b"", b"\x00", b"\xff\xfe", b'"', b"{", b"\n", b"NaN", b"\\ud800", b"9" * 5000]))
        content = content[:place] + put + content[place + length :]
    return suffix, content


@st.composite
def odd_rows(draw: st.DrawFn) -> tuple[str, bytes]:
    names = st.sampled_from(["id", "question", "answer", "problem", "solution", "choices", "messages", "other"])
    rows = draw(st.lists(st.dictionaries(names, VALUES, max_size=5) | VALUES, max_size=5))
    return ".jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()


def tried[T](read: Callable[[], T]) -> tuple[T | None, DataError | None]:
    """What reading gave, or the DataError that it raised."""
    try:
        return read(), None
    except DataError as error:
        return None, error


def source_of(path: Path, form: str | None) -> ProblemSource:
    columns = {} if form else {"question": "question", "answer": "answer"}
    return ProblemSource(path=str(path), format=form, columns=columns)


@settings(max_examples=320, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(file=broken_bytes() | odd_rows(), form=st.none() | st.sampled_from(sorted(FORMATS)), skip=st.booleans())
def test_problem_files(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes], form: str | None, skip: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / f"questions{file[0]}"
    path.write_bytes(file[1])
    problems, error = tried(lambda: read_problems(source_of(path, form), "skip" if skip else "error"))
    if error is None:
        assert problems and all(problem.question and problem.answer for problem in problems)
    else:
        assert "questions" in str(error)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(file=odd_rows())
def test_warm_up_records(tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "records.jsonl"
    path.write_bytes(file[1])
    _, error = tried(lambda: read_records(path))
    assert error is None or "records.jsonl" in str(error)


@pytest.mark.parametrize("suffix", sorted(WHOLE))
@pytest.mark.parametrize("content", [b"", b"[" * 200_000, b'{"question":' * 50_000, b"\x00" * 100, b"PAR1", b"\n" * 50])
def test_files_that_break_readers(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"hard{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match="hard"):
        read_problems(source_of(path, None))


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(DataError, match=tmp_path.name):
            read_problems(source_of(path, None))
    (tmp_path / "circle.jsonl").symlink_to("circle.jsonl")
    with pytest.raises(DataError, match="circle"):
        read_problems(source_of(tmp_path / "circle.jsonl", None))
    if os.geteuid():
        (tmp_path / "secret.jsonl").touch(mode=0)
        with pytest.raises(DataError, match="secret"):
            read_problems(source_of(tmp_path / "secret.jsonl", None))
