"""What a long run holds: resident memory, open files, threads and child processes, step by step.

    python benchmarks/soak.py CONFIG [KEY=VALUE ...] --out docs/img/soak.svg [--table soak.csv]

Starts `seirenes train CONFIG KEY=VALUE ...`, looks at the process through /proc whenever a step has ended, draws the
four curves and prints how each moved between the first steps after `--settle` and the last ones.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

from megatron_seirenes.config.loading import load_config

WINDOW = 20
"""Steps at either end whose medians are compared."""
WIDTH, PANEL, LEFT, TOP = 760, 110, 70, 26
FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True)
class Sample:
    step: int
    seconds: float
    memory_mib: float
    open_files: int
    threads: int
    children: int


CURVES = {
    "memory_mib": "resident memory, MiB",
    "open_files": "open files",
    "threads": "threads",
    "children": "child processes",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--settle", type=int, default=30)
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.overrides)
    metrics = Path(config.run.dir or f"runs/{config.run.name}") / "metrics.jsonl"
    command = [sys.executable, "-m", "megatron_seirenes", "train", arguments.config, *arguments.overrides]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={"OMP_NUM_THREADS": "1", **os.environ})
    samples = list(watch(process, metrics))
    if process.wait() or not samples:
        print(f"the run ended with code {process.returncode}", file=sys.stderr)
        return 1
    if arguments.table:
        write_table(arguments.table, samples)
    arguments.out.write_text(drawing(samples, arguments.settle), encoding="utf-8")
    print_summary([sample for sample in samples if sample.step > arguments.settle])
    return 0


def watch(process: subprocess.Popen[bytes], metrics: Path) -> Iterator[Sample]:
    """One sample a step, taken as soon as its row stands in `metrics`."""
    began, seen = time.monotonic(), 0
    while process.poll() is None:
        step = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if step > seen:
            seen = step
            with contextlib.suppress(OSError):  # a thread or the process may end between two looks
                yield Sample(step, time.monotonic() - began, *held_by(process.pid))
        time.sleep(0.05)


def held_by(pid: int) -> tuple[float, int, int, int]:
    """Resident MiB, open files, threads and children of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    children = sum(len(task.read_text().split()) for task in Path(f"/proc/{pid}/task").glob("*/children"))
    memory = int(status["VmRSS"].split()[0]) / 1024
    return memory, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), children


def write_table(path: Path, samples: Sequence[Sample]) -> None:
    names = [field.name for field in fields(Sample)]
    rows = [",".join(names), *(",".join(f"{value:g}" for value in astuple(sample)) for sample in samples)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def print_summary(samples: Sequence[Sample]) -> None:
    print(f"{'':<22}{'first':>10}{'last':>10}{'highest':>10}   of steps {samples[0].step} to {samples[-1].step}")
    for name, title in CURVES.items():
        values = [getattr(sample, name) for sample in samples]
        print(f"{title:<22}{median(values[:WINDOW]):>10.1f}{median(values[-WINDOW:]):>10.1f}{max(values):>10.1f}")


def drawing(samples: Sequence[Sample], settle: int) -> str:
    """The four curves over steps, one under the other, as SVG; a line marks the end of `settle` steps."""
    height = TOP + len(CURVES) * PANEL + 20
    last = samples[-1].step
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for index, (name, title) in enumerate(CURVES.items()):
        parts += panel([getattr(sample, name) for sample in samples], samples, title, TOP + index * PANEL)
    mark = horizontal(settle, last)
    place = f'x1="{mark:.1f}" x2="{mark:.1f}" y1="{TOP}" y2="{height - 20}"'
    parts.append(f'<line {place} stroke="#999" stroke-dasharray="3"/>')
    parts.append(f'<text x="{LEFT}" y="{height - 6}">step 1</text>')
    parts.append(f'<text x="{WIDTH - 10}" y="{height - 6}" text-anchor="end">step {last}</text></svg>')
    return "\n".join(parts) + "\n"


def panel(values: Sequence[float], samples: Sequence[Sample], title: str, top: float) -> list[str]:
    highest = max(values) * 1.1 or 1.0
    bottom, room = top + PANEL - 26, PANEL - 40
    points = " ".join(
        f"{horizontal(sample.step, samples[-1].step):.1f},{bottom - room * value / highest:.1f}"
        for sample, value in zip(samples, values, strict=True)
    )
    return [
        f'<text x="{LEFT}" y="{top + 8}" font-weight="bold">{title}</text>',
        f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{bottom}" y2="{bottom}" stroke="#ccc"/>',
        f'<text x="{LEFT - 8}" y="{bottom + 4}" text-anchor="end">0</text>',
        f'<text x="{LEFT - 8}" y="{bottom - room / 1.1 + 4:.1f}" text-anchor="end">{max(values):,.0f}</text>',
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
    ]


def horizontal(step: int, last: int) -> float:
    return LEFT + (WIDTH - LEFT - 10) * (step - 1) / max(1, last - 1)


if __name__ == "__main__":
    sys.exit(main())
