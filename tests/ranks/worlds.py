"""A tiny world for runs in many layouts: what one rank makes of it, and whether others make the same of it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_world import write_world
from torchrun import free_port, launch

from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.quickstart.records import write_warmup_records
from megatron_seirenes.quickstart.tokenizer import make_tokenizer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
QUICKSTART = ROOT / "yaml_configs" / "quickstart.yaml"
STEPS = 2
"""Collection steps of a run; one that goes on in another layout has one more."""
ALONE = "alone"
EXACT = ("streams/", "mastery/", "success/", "tokens/", "policy_version")
CLOSE = ("loss/", "entropy/", "advantage/", "reference_kl/", "correction_", "sequence_correction_")
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONPATH": str(ROOT),
}


@dataclass(frozen=True)
class World:
    """A folder with a warmed-up policy, `run.yaml`, and one run directory for each layout that was tried."""

    folder: Path

    def run_dir(self, name: str) -> Path:
        return self.folder / name.replace(", ", "-").replace(" ", "_")

    def launch(self, processes: int, layouts: Mapping[str, Sequence[str]], steps: int = STEPS) -> None:
        """Runs, or goes on with, a run in each layout (its overrides), one after the other in one launch."""
        cases = [
            {
                "name": self.run_dir(name).name,
                "overrides": [*overrides, f"run.collection_steps={steps}"],
                "port": free_port(),
            }
            for name, overrides in layouts.items()
        ]
        path = self.folder / "cases.json"
        path.write_text(json.dumps(cases))
        launch(HERE / "layout_program.py", processes, self.folder, path)

    def goes_on(self, processes: int, changes: Mapping[tuple[str, str], Sequence[str]]) -> None:
        """Copies of runs go on for another step; for each (layout before, layout after) the overrides after."""
        for before, after in changes:
            shutil.copytree(self.run_dir(before), self.run_dir(f"{before} then {after}"))
        layouts = {f"{before} then {after}": overrides for (before, after), overrides in changes.items()}
        self.launch(processes, layouts, STEPS + 1)
        for name in layouts:
            self.check_same(name, STEPS + 1)

    def waiting(self, name: str) -> int:
        """How many groups wait in the streams at the end of the run."""
        return sum(value for key, value in self.rows(name)[STEPS - 1].items() if key.endswith("/pending"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return read_metrics(self.run_dir(name) / "metrics.jsonl")

    def check_same(self, name: str, steps: int = STEPS, expected: str = ALONE) -> None:
        """Questions, rollouts, verdicts, credit, flushes and evictions equal one rank's; losses to 1e-4."""
        rows = self.rows(name)
        assert len(rows) == steps
        for row, one in zip(rows, self.rows(expected)[:steps], strict=True):
            where = (name, row["step"])
            assert self._records(name, row["step"]) == self._records(expected, row["step"]), where
            differing = [key for key in one if key.startswith(EXACT) and row[key] != one[key]]
            assert not differing, (*where, differing)
            compared = [key for key in one if key.startswith(CLOSE) and one[key] is not None]
            assert compared
            assert [row[key] for key in compared] == pytest.approx([one[key] for key in compared], abs=1e-4), where
            assert row["mismatch/logprob_abs_max"] <= 1e-3

    def _records(self, name: str, step: int) -> list[dict[str, Any]]:
        with gzip.open(self.run_dir(name) / "rollouts" / f"step-{step:06d}.jsonl.gz", "rt") as file:
            return [json.loads(line) for line in file]


def make_world(folder: Path, model: Mapping[str, Any]) -> World:
    """A policy of this shape that boxes numbers at random, so that every stream has signal, and one rank's run of it,
    a step longer than those in layouts."""
    warmup, _ = write_world(
        folder, model, snapshot={"every": 1, "keep": 10}, observe={"console": "none", "tensorboard": False}
    )
    _run("-m", "megatron_seirenes", "warmup", str(warmup))
    world = World(folder)
    world.launch(1, {ALONE: []}, STEPS + 1)
    return world


def make_quickstart_world(folder: Path) -> World:
    """The quickstart as users run it: its policy after its own warm-up, its batches, and one rank's first steps."""
    make_tokenizer(folder / "tokenizer")
    records = write_warmup_records(folder / "records", 0)
    template = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    phases = template["warmup"]["phases"]
    for phase, path in zip(phases, (records.phase1, records.phase2), strict=True):
        phase["records"] = str(path)
    common = {"extends": str(QUICKSTART), "observe": {"console": "none", "tensorboard": False, "timeline": False}}
    warmup = {
        "run": {"dir": str(folder / "warming")},
        "model": {"new": {"tokenizer": str(folder / "tokenizer")}},
        "warmup": {"out": str(folder / "warm"), "phases": phases},
    }
    run = {"model": {"path": str(folder / "warm"), "new": None}, "snapshot": {"every": 1, "keep": 10}}
    for name, content in (("warmup", warmup), ("run", run)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(common | content), encoding="utf-8")
    _run("-m", "megatron_seirenes", "warmup", str(folder / "warmup.yaml"))
    world = World(folder)
    world.launch(1, {ALONE: []})
    return world


def _run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
