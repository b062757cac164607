"""The tool as a user calls it: what it says when it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prepare_problems.py"


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, *words], capture_output=True, text=True, check=False)


def test_faults_are_one_message_and_exit_2(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("prepare: {count: 3}\n")
    done = call(config)
    assert done.returncode == 2
    assert "problems.train: is missing" in done.stderr and "prepare.out: is missing" in done.stderr
    done = call(config, "prepare.bukets=3")
    assert done.returncode == 2 and "did you mean buckets?" in done.stderr
    done = call(config, f"prepare.out={tmp_path / 'out.jsonl'}", "problems.train=[{path: gone.jsonl}]")
    assert done.returncode == 2 and "gone.jsonl: no such file" in done.stderr and "Traceback" not in done.stderr
