"""`seirenes evaluate`: the benchmarks of a configuration on a policy folder, with the engine alone (no actor)."""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console
from rich.markdown import Markdown

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError, StoppedBySignal
from megatron_seirenes.evaluation.asking import answering_stage, hinting_stage
from megatron_seirenes.evaluation.benchmarks import Evaluator
from megatron_seirenes.evaluation.identity import policy_digest
from megatron_seirenes.evaluation.results import Results
from megatron_seirenes.evaluation.tables import results_markdown
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.trainer.assembly import build_roles, open_policy
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_engine, open_judge, open_world
from megatron_seirenes.trainer.signals import StopListener


def evaluate(config: Config) -> Results:
    """Runs every benchmark, prints the tables and writes RUN_DIR/evaluation/; goes on where it was stopped.

    Raises ConfigError, DataError, UsageError when the folder holds answers of something else, StoppedBySignal.
    """
    if not config.evaluation.benchmarks:
        raise ConfigError("evaluation", ["evaluation.benchmarks: no benchmark is named"])
    directory = RunDirectory.of(config)
    assets = open_policy(config, directory)
    directory.create()
    roles = build_roles(config, (answering_stage(config).role, hinting_stage(config).role), assets.chat)
    with ExitStack() as stack:
        stop = stack.enter_context(StopListener())
        world = open_world(config, stack)
        judge = open_judge(config, stack)
        engine = open_engine(config, assets, world, stack)
        evaluator = Evaluator(config, roles, engine, judge, assets.chat, should_stop=lambda: stop.requested)
        try:
            results = evaluator.run_all(directory.evaluation, {"policy": policy_digest(assets.folder)})
        except CollectionStopped:
            raise StoppedBySignal(
                f"stopped by a signal; finished questions are kept in {directory.evaluation}; the same command goes on"
            ) from None
    Console().print(Markdown(results_markdown(results)))
    print(f"every answer, and the tables as JSON, CSV and Markdown: {directory.evaluation}")
    return results
