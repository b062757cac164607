"""Every file of a real snapshot, one at a time: a flipped bit, a lost tail, no file at all. Named, and never loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from launching import Launcher, differing, outcome, train

from megatron_seirenes.trainer.snapshot import complete_snapshots, fault_of, newest_sound_snapshot

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def harmed(content: bytes, harm: str) -> bytes:
    if harm == "truncate":
        return content[:-1]
    place = len(content) // 3
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_the_file_is_named_and_the_snapshot_before_is_used(whole_run: Path, tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "snapshots"
    shutil.copytree(whole_run / "snapshots", folder)
    newest, before, *_ = complete_snapshots(folder)
    files = [path for path in newest.rglob("*") if path.is_file()]
    assert len(files) >= 6 and any(path.suffix == ".distcp" for path in files)
    for file in files:
        content = file.read_bytes()
        file.unlink()
        if harm != "remove":
            file.write_bytes(harmed(content, harm))
        said: list[str] = []
        assert newest_sound_snapshot(folder, said.append) == before
        assert newest.name in said[0] and file.name in said[0], said
        file.write_bytes(content)
    assert fault_of(newest) is None


def test_a_run_goes_on_from_the_one_before(
    world: Path, whole_run: Path, whole: dict[str, Any], launcher: Launcher
) -> None:
    run_dir = world / "harmed"
    shutil.copytree(whole_run, run_dir)
    newest, before, *_ = complete_snapshots(run_dir / "snapshots")
    file = next(iter(sorted((newest / "actor").glob("*.distcp"))))
    file.write_bytes(harmed(file.read_bytes(), "flip"))
    process = train(launcher, world, run_dir)
    assert process.wait() == 0, process.output()[-3000:]
    assert f"{newest}: broken snapshot skipped" in process.output() and file.name in process.output()
    assert f"going on from {before}" in process.output()
    assert (newest.parent / f"{newest.name}.aside").is_dir()
    assert differing(outcome(run_dir), whole) == []
