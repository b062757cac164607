"""`seirenes evaluate`: the benchmarks of a configuration on a policy folder, with the engine alone (no actor)."""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError
from megatron_seirenes.evaluation.benchmarks import Evaluator, Results
from megatron_seirenes.trainer.assembly import build_roles, open_policy
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_engine, open_judge, open_world


def evaluate(config: Config) -> Results:
    """Runs every benchmark, prints the table and writes RUN_DIR/evaluation/. Raises ConfigError, DataError."""
    if not config.evaluation.benchmarks:
        raise ConfigError("evaluation", ["evaluation.benchmarks: no benchmark is named"])
    directory = RunDirectory.of(config)
    assets = open_policy(config, directory)
    directory.create()
    roles = build_roles(config, ("reasoner", "adversary"), assets.chat)
    with ExitStack() as stack:
        world = open_world(config, stack)
        judge = open_judge(config, stack)
        engine = open_engine(config, assets, world, stack)
        results = Evaluator(config, roles, engine, judge, assets.chat).run_all(directory.evaluation)
    print_results(results)
    print(f"every answer: {directory.evaluation}")
    return results


def print_results(results: Results) -> None:
    """The table of an evaluation: a line a benchmark with its 95 % interval over questions."""
    table = Table("benchmark", "questions", "metric", "success", "95 % interval")
    for name, result in results.benchmarks.items():
        estimate = result.estimate
        interval = f"{100 * estimate.low:.1f} – {100 * estimate.high:.1f}"
        table.add_row(
            name, str(len(result.question_ids)), f"avg@{result.samples}", f"{100 * estimate.mean:.1f} %", interval
        )
    Console().print(table)
