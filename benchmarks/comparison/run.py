"""Every method on the small world at equal budget (docs/comparison.md): warm-ups, hints, runs, evaluations, one by one.

    python benchmarks/comparison/run.py                            # everything, on from wherever it stands
    python benchmarks/comparison/run.py --worlds plain --seeds 0   # a part of it
    python benchmarks/comparison/run.py --limit 3 --commit         # three more runs, each result committed as it comes

A result is a file of benchmarks/comparison/results/; what is there is not run again, a run that was interrupted goes on
from its snapshot. Run directories, warm-ups and logs lie in --out. One process at a time, one thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from methods import METHODS, WORLDS, Cell, benchmarks, cells, training_questions
from report import write_report

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGS = REPOSITORY / "yaml_configs"
RESULTS = Path(__file__).parent / "results"
HINTS_PER_QUESTION = 2


class Workshop:
    """Makes what runs need, once, and runs them. `out` holds everything that is not a result."""

    def __init__(self, out: Path, results: Path, budget: int, quick: bool):
        self.out = out.resolve()
        self.results = results
        self.budget = budget
        self.quick = quick

    def result(self, cell: Cell) -> Path:
        return self.results / f"{cell.name}.json"

    def run(self, cell: Cell) -> None:
        """Warm-up, hints, training, evaluation and the result of one cell, leaving out what is there."""
        config = self.config(cell)
        started = time.monotonic()
        if not (self.folder(cell) / "policy").exists():
            self.command(cell.name, "-m", "megatron_seirenes", "train", str(config))
        seconds = time.monotonic() - started
        self.command(cell.name, "-m", "megatron_seirenes", "evaluate", str(config), *self.evaluated(cell))
        result = summary(self.folder(cell) / "metrics.jsonl", self.evaluation(cell) / "results.json")
        result = {"world": cell.world, "warmup": cell.warmup, "seed": cell.seed, "method": cell.method, **result}
        result |= {"budget": self.budget, "seconds": round(seconds, 1)}
        self.results.mkdir(parents=True, exist_ok=True)
        self.result(cell).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    def folder(self, cell: Cell) -> Path:
        return self.out / "runs" / cell.name

    def evaluation(self, cell: Cell) -> Path:
        return self.out / "evaluations" / cell.name / "evaluation"

    def evaluated(self, cell: Cell) -> list[str]:
        """Overrides that make the run's configuration one that evaluates its policy."""
        policy = self.folder(cell) / "policy"
        return [f"model.path={policy}", f"run.dir={self.evaluation(cell).parent}"]

    def config(self, cell: Cell) -> Path:
        """Writes the cell's configuration; its warm policy and hints exist afterwards."""
        method = METHODS[cell.method]
        changes: dict[str, Any] = {
            "run": {"name": cell.name, "dir": str(self.folder(cell)), "seed": cell.seed},
            "model": {"path": str(self.warm(cell.warmup)), "new": None},
            "problems": {"train": [training_questions(cell.world)]},
            "observe": {"tensorboard": False, "timeline": False, "console": "plain"},
            "evaluation": {"benchmarks": benchmarks(cell.world)},
        }
        changes["run"]["budget"] = {"generated_tokens": self.budget}
        changes = merged(changes, method.changes)
        if method.hints:
            changes = merged(changes, {"game": {"hint_file": str(self.hints(cell))}})
        return self.write(cell.name, [] if method.preset is None else [f"games/{method.preset}.yaml"], changes)

    def warm(self, warmup: int) -> Path:
        """The policy of a warm-up, made when it is not there."""
        folder = self.out / f"warm{warmup}"
        if folder.exists():
            return folder
        from megatron_seirenes.quickstart.records import write_warmup_records
        from megatron_seirenes.quickstart.tokenizer import make_tokenizer

        make_tokenizer(self.out / "tokenizer")
        files = write_warmup_records(self.out / f"records{warmup}", warmup)
        template = yaml.safe_load((CONFIGS / "quickstart.yaml").read_text(encoding="utf-8"))
        phases = template["warmup"]["phases"]
        for phase, records in zip(phases, (files.phase1, files.phase2), strict=True):
            phase["records"] = str(records)
            if self.quick:
                phase |= {"steps": 30, "min_steps": 0}
        changes = {
            "run": {"name": "warmup", "dir": str(self.out / f"warmup_run{warmup}"), "seed": warmup},
            "model": {"new": {"tokenizer": str(self.out / "tokenizer")}},
            "warmup": {"out": str(folder), "phases": phases},
        }
        self.command(f"warmup{warmup}", "-m", "megatron_seirenes", "warmup", str(self.write("warmup", [], changes)))
        return folder

    def hints(self, cell: Cell) -> Path:
        """The warm policy's own hints on the world's training questions, made when they are not there."""
        path = self.out / f"hints-{cell.world}-warm{cell.warmup}.jsonl"
        if not path.exists():
            changes = {
                "run": {"name": "hints", "dir": str(self.out / "hints_run")},
                "model": {"path": str(self.warm(cell.warmup)), "new": None},
                "problems": {"train": [training_questions(cell.world)]},
            }
            config = self.write(path.stem, [], changes)
            options = [f"--per-question={HINTS_PER_QUESTION}", "--attempts=6"]
            self.command(path.stem, str(REPOSITORY / "tools" / "make_hints.py"), str(config), str(path), *options)
        return path

    def write(self, name: str, presets: Sequence[str], changes: dict[str, Any]) -> Path:
        path = self.out / "configs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        extends = [os.path.relpath(CONFIGS / file, path.parent) for file in ("quickstart.yaml", *presets)]
        path.write_text(yaml.safe_dump({"extends": extends, **changes}, sort_keys=False), encoding="utf-8")
        return path

    def command(self, name: str, *arguments: str) -> None:
        """Runs Python on one thread; what it prints goes to a log. Raises CalledProcessError."""
        log = self.out / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)}
        with log.open("ab") as file:
            subprocess.run([sys.executable, *arguments], stdout=file, stderr=file, env=environment, check=True)


def merged(base: dict[str, Any], changes: Any) -> dict[str, Any]:
    """`base` with `changes` laid over it, mappings key by key."""
    from megatron_seirenes.config.layers import deep_merge

    return deep_merge(base, changes)


def summary(metrics: Path, results: Path) -> dict[str, Any]:
    """What a run used, how strong the attack was over its tokens, and how its policy fared."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    generated, attack = 0, []
    for row in rows:
        generated += row["tokens/generated"]
        if row["attack/delta"] is not None:
            attack.append([generated, round(row["attack/delta"], 5)])
    found = json.loads(results.read_text(encoding="utf-8"))
    kept = ("mean", "low", "high", "questions")
    return {
        "steps": len(rows),
        "generated_tokens": generated,
        "trained_tokens": sum(row["tokens/trained"] for row in rows),
        "updates": rows[-1]["policy_version"],
        "attack": attack,
        "evaluation": {name: {key: benchmark[key] for key in kept} for name, benchmark in found.items()},
    }


def commit(path: Path, page: Path, cell: Cell) -> None:
    """Commits a result and the page made of all results."""
    for arguments in (["add", str(path), str(page)], ["commit", "-q", "-m", f"Comparison: {cell.name}"]):
        subprocess.run(["git", *arguments, *(["--", str(path), str(page)] * (arguments[0] == "commit"))], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/comparison"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=REPOSITORY / "docs" / "comparison.md")
    parser.add_argument("--budget", type=int, default=400_000, help="generated tokens of a run")
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--warmups", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--limit", type=int, help="how many runs at most")
    parser.add_argument("--commit", action="store_true", help="commit each result as it comes")
    parser.add_argument("--quick", action="store_true", help="tiny warm-ups: to try this script, not to compare")
    arguments = parser.parse_args()
    workshop = Workshop(arguments.out, arguments.results, arguments.budget, arguments.quick)
    wanted = cells(arguments.worlds, arguments.warmups, arguments.seeds, arguments.methods)
    missing = [cell for cell in wanted if not workshop.result(cell).exists()]
    for number, cell in enumerate(missing[: arguments.limit], start=1):
        print(f"{number} of {len(missing)} missing: {cell.name}", flush=True)
        workshop.run(cell)
        write_report(arguments.results, arguments.page)
        if arguments.commit:
            commit(workshop.result(cell), arguments.page, cell)


if __name__ == "__main__":
    main()
