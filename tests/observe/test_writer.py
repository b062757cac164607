import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observe_samples import metrics_row

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.writer import MetricsWriter, read_metrics


def write(path: Path, steps: range) -> None:
    with MetricsWriter(path) as writer:
        for step in steps:
            writer.append({"step": step, "success/clean": step / 10})


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    row = metrics_row(3)
    with MetricsWriter(path) as writer:
        assert writer.last_step is None
        assert writer.append(row) == ()
        assert read_metrics(path) == [row], "a row is on the disk before append returns"
        assert writer.last_step == 3


def test_values_that_are_not_finite_become_null_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path) as writer:
        row = {"step": 1, "loss/clean": float("nan"), "grad_norm/clean": float("inf"), "time/step": 1.0}
        assert writer.append(row) == ("loss/clean", "grad_norm/clean")

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    stored = json.loads(path.read_text(), parse_constant=refuse)
    assert stored == {"step": 1, "loss/clean": None, "grad_norm/clean": None, "time/step": 1.0, "metrics/nonfinite": 2}


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 400), noise=st.sampled_from([b"", b"\n", b"\x00\x00\x00", b"\x00\x00\n", b'{"step": 4']))
def test_a_kill_at_any_byte_loses_no_whole_row(
    tmp_path_factory: pytest.TempPathFactory, cut: int, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    write(path, range(1, 5))
    content = path.read_bytes()[:cut]
    whole = content.count(b"\n")
    if whole < 4 and noise and not content.endswith(b"\n") and content:
        noise = b""
    path.write_bytes(content + noise)
    assert [row["step"] for row in read_metrics(path)] == list(range(1, whole + 1))
    write(path, range(whole + 1, 7))
    assert [row["step"] for row in read_metrics(path)] == list(range(1, 7))
    assert path.read_bytes().count(b"\n") == 6


def test_going_on_leaves_neither_gaps_nor_doubles(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 8))
    with MetricsWriter(path) as writer:
        assert writer.last_step == 7
        assert writer.truncate_after(5) == 2
        assert writer.last_step == 5
        assert writer.truncate_after(5) == 0
        writer.append({"step": 6})
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3, 4, 5, 6]
    with MetricsWriter(path) as writer:
        assert writer.truncate_after(0) == 6
        assert path.read_bytes() == b""
        writer.append({"step": 1})
    assert len(read_metrics(path)) == 1


@pytest.mark.parametrize("step", [2, 1])
def test_a_step_is_not_written_twice(tmp_path: Path, step: int) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 3))
    with MetricsWriter(path) as writer, pytest.raises(ValueError, match="steps must rise"):
        writer.append({"step": step})
    assert len(read_metrics(path)) == 2


def test_a_wrong_row_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 3))
    with MetricsWriter(path) as writer:
        with pytest.raises(ValueError, match="nonsense"):
            writer.append({"step": 3, "nonsense": 1.0})
        writer.append({"step": 3})
    assert len(read_metrics(path)) == 3


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 2"):
        read_metrics(path)
    with pytest.raises(DataError, match="line 2"):
        MetricsWriter(path)
    assert path.read_text().count("\n") == 3, "nothing was lost by looking"
