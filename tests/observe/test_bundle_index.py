from pathlib import Path

import pytest
from observe_samples import bundle, decode, groups_of

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.bundle_index import (
    HintFacts,
    bundle_facts,
    encode_bundle,
    index_path,
    read_bundle,
    read_index,
    remove_records_after,
    write_bundles,
)
from megatron_seirenes.observe.record_writer import RecordWriter
from megatron_seirenes.observe.records import (
    encode_records,
    read_records,
    record_path,
    rollout_records,
    write_records,
)

BUNDLES = (
    bundle("p/1", (True, False), {"a hint — ü": (False, True), "bad": ()}, refused=["bad"]),
    bundle("p/2", (True, True), {"\u2028 <b>": (False, False)}),
    bundle("p/3", (False, False)),
)
RECORDS = [rollout_records(one, groups_of(one), decode) for one in BUNDLES]


def write(folder: Path, step: int = 7) -> Path:
    return write_bundles(folder, step, [encode_bundle(records) for records in RECORDS])


def test_facts_count_answers_of_the_question_and_under_each_hint() -> None:
    first, second, third = map(bundle_facts, RECORDS)
    assert (first.problem_id, first.correct, first.judged, first.reward) == ("p/1", 1, 2, 0.5)
    assert first.hints == (HintFacts(0.5, 1, 2, refused=False), HintFacts(0.5, 0, 0, refused=True))
    assert (first.gap, second.gap, third.gap) == (0.0, 1.0, 0.0)
    assert third.hints == ()


def test_each_bundle_is_read_alone(tmp_path: Path) -> None:
    path = write(tmp_path)
    entries = read_index(path)
    assert [read_bundle(path, entry) for entry in entries] == RECORDS
    assert list(read_records(path)) == [record for records in RECORDS for record in records]
    assert sum(entry.size for entry in entries) == path.stat().st_size


@pytest.mark.parametrize("spoil", [lambda index: index.unlink(), lambda index: index.write_text('{"bytes": 3}')])
def test_without_a_fitting_index_the_records_are_indexed_again(tmp_path: Path, spoil) -> None:
    path = write(tmp_path)
    written = read_index(path)
    spoil(index_path(path))
    assert read_index(path) == written


def test_a_member_may_hold_several_questions(tmp_path: Path) -> None:
    path = write_records(tmp_path, 1, [encode_records(RECORDS[0] + RECORDS[1]), encode_records(RECORDS[2])])
    assert [read_bundle(path, entry) for entry in read_index(path)] == RECORDS


def test_what_is_not_whole_names_its_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    entries = read_index(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="step-000007"):
        read_index(path)
    with pytest.raises(DataError, match="step-000007"):
        read_bundle(path, entries[-1])


def test_writing_in_the_background_gives_the_same_files(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "later")
    for step in (1, 2):
        writer.write(step, RECORDS)
    writer.close()
    for step in (1, 2):
        at_once = write(tmp_path / "now", step)
        later = record_path(tmp_path / "later", step)
        assert later.read_bytes() == at_once.read_bytes()
        assert index_path(later).read_bytes() == index_path(at_once).read_bytes()
    assert len(list((tmp_path / "later" / "rollouts").iterdir())) == 4, "no partial file is left"


def test_a_failed_write_is_raised_by_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "rollouts").write_text("a file where the folder should be")
    writer = RecordWriter(tmp_path)
    writer.write(1, RECORDS)
    with pytest.raises(OSError):
        writer.wait()
    writer.close()


def test_later_steps_are_removed_when_a_run_goes_on(tmp_path: Path) -> None:
    for step in (9, 10, 11, 1_000_000):
        write(tmp_path, step)
    assert remove_records_after(tmp_path, 10) == 2
    kept = {path for step in (9, 10) for path in (record_path(tmp_path, step), index_path(record_path(tmp_path, step)))}
    assert set((tmp_path / "rollouts").iterdir()) == kept
    assert remove_records_after(tmp_path / "nowhere", 0) == 0
