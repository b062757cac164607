"""`seirenes quickstart`: the whole road on one machine, nothing downloaded.

Makes the small world's tokenizer and demonstrations, warms up a new model, trains it by Seirênes and, from the same
start and for the same number of generated tokens, by GRPO, evaluates all three on held-out questions, and says what
changed. Everything is an ordinary command on a configuration written into the folder, so each part can be run again.

A part whose product is there is not run again: a quickstart that was interrupted goes on when it is called again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import batched
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from megatron_seirenes.config.loading import dump_config, load_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import MissingComponentError, UsageError
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.quickstart.processes import Command, run_together
from megatron_seirenes.quickstart.records import write_warmup_records
from megatron_seirenes.quickstart.summary import compare, read_results, summary_markdown
from megatron_seirenes.quickstart.tokenizer import make_tokenizer

TEMPLATE = Path(__file__).parents[2] / "yaml_configs" / "quickstart.yaml"
WARM = "after warm-up"
FROZEN = "learning off"
AT_ONCE = 2
"""Commands side by side, one a core."""


def quickstart(out: Path, seed: int = 0, control: bool = False) -> None:
    """Runs the quickstart in `out`; `control` adds the same run with learning switched off.

    Raises UsageError when `out` holds something else, SeirenesError when a part fails.
    """
    console = Console()
    if not TEMPLATE.exists():
        raise MissingComponentError(f"quickstart needs {TEMPLATE}: run it from a checkout of the repository")
    claim(out, seed)
    plan = Plan(out, load_config(TEMPLATE, [f"run.seed={seed}"]), control)
    console.print(f"[bold]Seirênes quickstart[/] in {out}: about ten minutes on two cores")
    make_tokenizer(plan.tokenizer)
    write_warmup_records(plan.demonstrations, seed)
    plan.write_configs()
    run_together([plan.warmup_command()], console)
    runs = ("seirenes", "grpo", "frozen") if control else ("seirenes", "grpo")
    for pair in batched([plan.training_command(run) for run in runs], AT_ONCE):
        run_together(pair, console)
    for pair in batched([plan.evaluation_command(policy) for policy in plan.policies()], AT_ONCE):
        run_together(pair, console)
    conclude(plan, console)


def claim(out: Path, seed: int) -> None:
    """Marks `out` as the quickstart of `seed`. Raises UsageError when it holds anything else."""
    marker = out / "quickstart.json"
    mine = {"seed": seed}
    if marker.exists():
        if json.loads(marker.read_text(encoding="utf-8")) != mine:
            raise UsageError(f"--out: {out} holds a quickstart with another seed; name another folder or remove it")
        return
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out: {out} is not empty; name another folder or remove it")
    out.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps(mine), encoding="utf-8")


class Plan:
    """Where everything lies in `out`, and the configuration of every part."""

    def __init__(self, out: Path, template: Config, control: bool):
        self.out = out
        self.template = template
        self.control = control
        self.tokenizer = out / "tokenizer"
        self.demonstrations = out / "warmup"
        self.warm = out / "warm"
        self.configs = out / "configs"
        self.logs = out / "logs"

    def run_dir(self, run: str) -> Path:
        return self.out / run

    def policies(self) -> dict[str, Path]:
        """The folder of every policy that is compared, by the name it has in the tables."""
        found = {
            WARM: self.warm,
            "GRPO": self.run_dir("grpo") / "policy",
            "Seirênes": self.run_dir("seirenes") / "policy",
        }
        return found | ({FROZEN: self.run_dir("frozen") / "policy"} if self.control else {})

    def write_configs(self) -> None:
        """One configuration a part, whole, so that it can be read, changed and run by itself."""
        self.configs.mkdir(parents=True, exist_ok=True)
        phases = [
            phase.model_copy(update={"records": str(self.demonstrations / Path(phase.records).name)}).model_dump()
            for phase in self.template.warmup.phases
        ]
        new = self.template.model.new
        assert new is not None, "the quickstart's template describes a new model"
        self._write(
            "warmup",
            {
                "run": {"name": "warmup", "dir": str(self.run_dir("warmup_run"))},
                "model": {"new": new.model_copy(update={"tokenizer": str(self.tokenizer)}).model_dump()},
                "warmup": {"phases": phases, "out": str(self.warm)},
            },
        )
        warm = {"path": str(self.warm), "new": None}
        self._write_run("seirenes", {"model": warm})
        self._write_run("grpo", {"model": warm, "game": {"name": "grpo"}})
        if self.control:
            self._write_run("frozen", {"model": warm, "optimizer": {"lr": 0.0}})
        for policy, folder in self.policies().items():
            name = f"evaluate-{slug(policy)}"
            self._write_run(name, {"model": {"path": str(folder), "new": None}})

    def _write_run(self, name: str, changes: Mapping[str, Any]) -> None:
        self._write(name, {"run": {"name": name, "dir": str(self.run_dir(name))}, **changes})

    def _write(self, name: str, changes: Mapping[str, Any]) -> None:
        config = Config.model_validate(merged(self.template.model_dump(), changes))
        (self.configs / f"{name}.yaml").write_text(dump_config(config), encoding="utf-8")

    # -- commands

    def warmup_command(self) -> Command:
        log = self.logs / "warmup.log"
        steps = [phase.steps for phase in self.template.warmup.phases]
        return self._command("warm-up", "warmup", "warmup", self.warm, log, lambda: warmup_progress(log, steps))

    def training_command(self, run: str) -> Command:
        budget = self.template.run.budget.generated_tokens or 1
        metrics = self.run_dir(run) / "metrics.jsonl"
        product, log = self.run_dir(run) / "policy", self.logs / f"{run}.log"
        return self._command(f"training {run}", "train", run, product, log, lambda: token_progress(metrics, budget))

    def evaluation_command(self, policy: str) -> Command:
        name = f"evaluate-{slug(policy)}"
        results = self.run_dir(name) / "evaluation" / "results.json"
        log = self.logs / f"{name}.log"
        return self._command(f"evaluating {policy}", "evaluate", name, results, log, lambda: float(results.exists()))

    def _command(
        self, title: str, command: str, config: str, product: Path, log: Path, progress: Callable[[], float]
    ) -> Command:
        return Command(title, (command, str(self.configs / f"{config}.yaml")), product, log, progress)


def conclude(plan: Plan, console: Console) -> None:
    """Prints and writes what changed, and where to look."""
    results = read_results({p: plan.run_dir(f"evaluate-{slug(p)}") / "evaluation" for p in plan.policies()})
    pairs = [("Seirênes", WARM), ("Seirênes", "GRPO"), ("GRPO", WARM)]
    if plan.control:
        pairs.append((FROZEN, WARM))
    summary = summary_markdown(results, compare(results, pairs))
    (plan.out / "summary.md").write_text(summary, encoding="utf-8")
    console.print(Markdown(summary))
    from megatron_seirenes.observe.report import write_report

    runs = [plan.run_dir("seirenes"), plan.run_dir("grpo")]
    report = write_report(runs, plan.out / "report.html")
    console.print(
        f"the same table: {plan.out / 'summary.md'}\n"
        f"curves, queues and bundles (question, hint, answers side by side): {report}\n"
        f"runs: {runs[0]}, {runs[1]}; trained policy: {runs[0] / 'policy'}\n"
        f"again, by hand: seirenes train {plan.configs / 'seirenes.yaml'} run.dir=another",
        highlight=False,
        soft_wrap=True,
    )


def slug(policy: str) -> str:
    """A policy's name as part of a file name."""
    return re.sub(r"[^a-z]+", "-", policy.lower().replace("ê", "e"))


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, mappings key by key."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def warmup_progress(log: Path, steps: list[int]) -> float:
    """How far a warm-up is, from the lines it prints: phases that ended early count as whole."""
    text = log.read_text(errors="replace") if log.exists() else ""
    done = len(re.findall(r"\| done after", text))
    current = re.findall(r"\| update (\d+)/", text.rpartition("| done after")[2])
    return min(1.0, (sum(steps[:done]) + (int(current[-1]) if current else 0)) / sum(steps))


def token_progress(metrics: Path, budget: int) -> float:
    """How much of the token budget a run has used."""
    if not metrics.exists():
        return 0.0
    return min(1.0, sum(row["tokens/generated"] for row in read_metrics(metrics)) / budget)
