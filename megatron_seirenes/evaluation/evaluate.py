"""`seirenes evaluate`: the benchmarks of a configuration on a policy folder, with the engine alone (no actor)."""

from __future__ import annotations

from contextlib import ExitStack

from rich.console import Console
from rich.markdown import Markdown

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError, StoppedBySignal
from megatron_seirenes.evaluation.asking import answering_stage, hinting_stage
from megatron_seirenes.evaluation.benchmarks import Evaluator
from megatron_seirenes.evaluation.opening import open_for_questions
from megatron_seirenes.evaluation.results import Results
from megatron_seirenes.evaluation.tables import results_markdown
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_judge
from megatron_seirenes.trainer.signals import StopListener


def evaluate(config: Config) -> Results:
    """Runs every benchmark, prints the tables and writes RUN_DIR/evaluation/; goes on where it was stopped.

    Raises ConfigError, DataError, UsageError when the folder holds answers of something else, StoppedBySignal.
    """
    if not config.evaluation.benchmarks:
        raise ConfigError("evaluation", ["evaluation.benchmarks: no benchmark is named"])
    directory = RunDirectory.of(config)
    with ExitStack() as stack:
        stop = stack.enter_context(StopListener())
        judge = open_judge(config, stack)
        names = (answering_stage(config).role, hinting_stage(config).role)
        policy, made_by = open_for_questions(config, directory, names, stack)
        directory.create()
        evaluator = Evaluator(
            config, policy.roles, policy.engine, judge, policy.chat, should_stop=lambda: stop.requested
        )
        try:
            results = evaluator.run_all(directory.evaluation, made_by)
        except CollectionStopped:
            raise StoppedBySignal(
                f"stopped by a signal; finished questions are kept in {directory.evaluation}; the same command goes on"
            ) from None
    Console().print(Markdown(results_markdown(results)))
    print(f"every answer, and the tables as JSON, CSV and Markdown: {directory.evaluation}")
    return results
