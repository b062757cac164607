"""The tools as users call them: by path, with their exit codes and messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def call(tool: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "tools" / tool, *words], capture_output=True, text=True, check=False)


def test_plans_are_printed_and_can_be_read_by_programs() -> None:
    done = call("plan_layout.py", "--model", "qwen3-4b", "--gpus", "8", "--top", "2", "--json")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["seconds"]["total"] <= second["seconds"]["total"] and first["training"]["world"] == 8
    wrong = call("plan_layout.py", "--model", "qwen9")
    assert wrong.returncode == 2 and "known are: qwen2.5-7b" in wrong.stderr


def test_quantisation_says_that_it_is_not_built() -> None:
    done = call("quantize_checkpoint.py", "a", "b")
    assert done.returncode == 3 and "not built yet" in done.stderr


def test_a_conversion_that_cannot_be_says_why(tmp_path: Path) -> None:
    done = call("convert_checkpoint.py", "to-megatron", tmp_path / "no", tmp_path / "out")
    assert done.returncode == 2 and "holds no config.json" in done.stderr and "Traceback" not in done.stderr
