"""Each layout in a torchrun of its own, so that one that fails or leaks spoils no other."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from megatron_seirenes.benchmark.cases import Result, Work, overrides_of

MODULE = "megatron_seirenes.benchmark.measure"
_LAST_WORDS = re.compile(r"(?:^|\]:)\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt): .+)$", re.MULTILINE)


def measure_all(
    config: str | Path,
    overrides: Sequence[str],
    layouts: Sequence[str],
    devices: int,
    work: Work,
    seconds_a_layout: float = 1_800,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Measures every layout on `devices` devices of this machine; one that fails is a result with its reason."""
    results = []
    for layout in layouts:
        result = _measure_one(config, [*overrides, *overrides_of(layout)], layout, devices, work, seconds_a_layout)
        on_result(result)
        results.append(result)
    return results


def _measure_one(
    config: str | Path, overrides: Sequence[str], layout: str, devices: int, work: Work, seconds: float
) -> Result:
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        spec, out = Path(folder) / "spec.json", Path(folder) / "out.json"
        asked = {"config": str(config), "overrides": list(overrides), "layout": layout, "work": asdict(work)}
        spec.write_text(json.dumps(asked), encoding="utf-8")
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(devices)]
        process = subprocess.Popen(
            [*launch, "-m", MODULE, spec, out],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return Result(layout, devices, reason=f"took longer than {seconds:.0f} s")
        if out.exists() and process.returncode == 0:
            return Result(**json.loads(out.read_text(encoding="utf-8")))
        return Result(layout, devices, reason=_reason(out.with_suffix(".reason"), said, process.returncode))


def _reason(file: Path, said: str, code: int) -> str:
    """What the rank wrote, else the last error it printed."""
    if file.exists():
        text = file.read_text(encoding="utf-8")
    else:
        words = [line for line in _LAST_WORDS.findall(said) if "ChildFailedError" not in line]
        text = words[-1] if words else f"ended with exit code {code}"
    return " ".join(text.split())
