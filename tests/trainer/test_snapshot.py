"""Snapshots: complete or not there, in order, and broken ones found by name."""

from pathlib import Path

import pytest

from megatron_seirenes.errors import DataError
from megatron_seirenes.trainer.snapshot import (
    Cursor,
    complete_snapshots,
    fault_of,
    newest_sound_snapshot,
    read_state,
    remove_old,
    write_snapshot,
)


def save_actor(folder: Path) -> None:
    (folder / "weights").write_bytes(b"weights" * 100)


def write(folder: Path, cursor: Cursor, state=None) -> Path:
    return write_snapshot(folder, cursor, state or {"x": 0.1 + 0.2}, "run: {}\n", save_actor)


def test_state_comes_back_exactly(tmp_path):
    state = {"x": 0.1 + 0.2, "ids": [1, 2], "none": None, "text": "Seirênes"}
    assert read_state(write(tmp_path, Cursor(3), state)) == state


def test_newest_first_with_those_inside_a_step_between_the_steps(tmp_path):
    cursors = [Cursor(2), Cursor(1, next_stream=2), Cursor(1), Cursor(1, next_stream=0), Cursor(10)]
    for cursor in cursors:
        write(tmp_path, cursor)
    names = [path.name for path in complete_snapshots(tmp_path)]
    assert names == ["step-000010", "step-000002", "step-000001-next-2", "step-000001-next-0", "step-000001"]


def test_an_unfinished_snapshot_is_not_seen(tmp_path):
    write(tmp_path, Cursor(1))

    def fail(folder: Path) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_snapshot(tmp_path, Cursor(2), {}, "", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"], "nothing of it stays"


def test_a_folder_that_vanished_is_not_made_anew(tmp_path):
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "gone", Cursor(1))
    assert not (tmp_path / "gone").exists()


def test_a_state_of_another_format_is_refused(tmp_path):
    snapshot = write(tmp_path, Cursor(1), {"format": 99})
    with pytest.raises(DataError, match="a snapshot of format 99; this version reads format 1"):
        read_state(snapshot)
    (snapshot / "state.json.gz").write_bytes((snapshot / "state.json.gz").read_bytes()[:-9] + b"nonsense!")
    with pytest.raises(DataError, match="cannot be read"):
        read_state(snapshot)


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
@pytest.mark.parametrize("name", ["actor/weights", "state.json.gz", "config.yaml", "digests.json", "COMPLETE"])
def test_every_broken_file_is_named_and_the_one_before_is_used(tmp_path, harm, name):
    older = write(tmp_path, Cursor(1))
    newer = write(tmp_path, Cursor(2))
    file = newer / name
    content = bytearray(file.read_bytes())
    if harm == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif harm == "truncate":
        file.write_bytes(content[:-1])
    else:
        file.unlink()
    messages: list[str] = []
    assert newest_sound_snapshot(tmp_path, messages.append) == older
    assert name in messages[0] and newer.name in messages[0]


def test_every_bit_of_a_snapshot_matters(tmp_path):
    """Flips one bit of every byte of the small files, and of every tenth byte of the others."""
    snapshot = write(tmp_path, Cursor(1))
    for file in (path for path in snapshot.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for place in range(0, len(whole), 10 if len(whole) > 200 else 1):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
            assert fault_of(snapshot), f"bit {place % 8} of byte {place} of {file.name}"
        file.write_bytes(whole)
    assert fault_of(snapshot) is None


def test_old_ones_go_and_every_nth_stays(tmp_path):
    for step in range(1, 8):
        write(tmp_path, Cursor(step))
    remove_old(tmp_path, keep=2, keep_every=3)
    assert [path.name for path in complete_snapshots(tmp_path)] == ["step-000007", "step-000006", "step-000003"]


def test_a_sound_snapshot_has_no_fault(tmp_path):
    assert fault_of(write(tmp_path, Cursor(4, next_stream=1))) is None
    assert Cursor.parse("step-000004-next-1") == Cursor(4, 1) and Cursor.parse("elsewhere") is None
