"""Running the benchmarks of a configuration: read, asked, judged, summed up and written.

Every answer is kept (`answers.py`). An evaluation that knows what its answers are made with (`made_by`) goes on with
those that stand there; one during training, whose policy changes, does not. With several rollout replicas each asks its
share of the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from megatron_seirenes.config.schema import BenchmarkSettings, Config
from megatron_seirenes.evaluation.answers import Provenance, write_answers
from megatron_seirenes.evaluation.asking import Policy, Round, ask
from megatron_seirenes.evaluation.distractors import endpoint_hints, fixed_hints
from megatron_seirenes.evaluation.results import (
    BenchmarkResult,
    Degradation,
    Results,
    degradation_of,
    suite_of,
    summarise,
)
from megatron_seirenes.evaluation.shared_questions import joined, own_share
from megatron_seirenes.evaluation.tables import write_results
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.trainer.ranks import ALONE, Ranks, several
from megatron_seirenes.verifier.protocol import Judge


class Evaluator:
    """Evaluates the benchmarks of a configuration with a given engine, roles and judge.

    With several `ranks` every method is collective, every rank has the results, and the ranks write to folders of their
    own; what is in rank 0's counts.
    """

    def __init__(
        self,
        config: Config,
        roles: Roles,
        engine: Engine,
        judge: Judge,
        chat: ChatFormat,
        *,
        should_stop: Callable[[], bool] | None = None,
        ranks: Ranks = ALONE,
    ):
        self.config = config
        self.policy = Policy(config, roles, engine, chat)
        self.judge = judge
        self.should_stop = should_stop
        self.ranks = ranks

    def run_all(self, out: Path, made_by: Provenance | None = None) -> Results:
        """Runs every benchmark and writes `out`: answers a benchmark, results as JSON, CSV and Markdown.

        With `made_by` (what the policy is) answers that stand in `out` are not asked for again. Raises DataError for
        unusable questions or hints, UsageError for answers made with something else, CollectionStopped when told to
        stop.
        """
        settings = self.config.evaluation
        found = {name: self.run(name, benchmark, out, made_by) for name, benchmark in settings.benchmarks.items()}
        suites = tuple(
            suite_of(name, [found[member] for member in members], settings.seed)
            for name, members in settings.suites.items()
        )
        results = Results(found, suites, tuple(self._degradations(found)))
        write_results(results, out)
        return results

    def run(
        self, name: str, benchmark: BenchmarkSettings, out: Path, made_by: Provenance | None = None
    ) -> BenchmarkResult:
        """Asks and judges one benchmark. Raises as `run_all` does."""
        problems = read_problems(benchmark.problems, self.config.problems.bad_rows)
        seed = stable_seed(self.config.evaluation.seed, "evaluation", name)
        own_hint = benchmark.distractors is not None and benchmark.distractors.kind == "policy"
        questions = Round(
            name,
            own_share(self.ranks, problems),
            benchmark.samples,
            seed,
            max_tokens=benchmark.max_tokens,
            hints=self._hints(benchmark, problems, seed),
            own_hint=own_hint,
            own_hint_tokens=benchmark.distractors.max_tokens if benchmark.distractors else None,
            extraction=benchmark.extraction,
        )
        path = out / f"answers-{name}.jsonl"
        found = joined(
            self.ranks, lambda: ask(self.policy, self.judge, questions, path, made_by, should_stop=self.should_stop)
        )
        if several(self.ranks):
            write_answers(path, found)
        return summarise(name, benchmark.samples, found, seed)

    def _hints(self, benchmark: BenchmarkSettings, problems: Sequence[Problem], seed: int) -> dict[str, str] | None:
        settings = benchmark.distractors
        if settings is None or settings.kind == "policy":
            return None
        if settings.kind == "endpoint":
            return endpoint_hints(settings, problems, self.should_stop or (lambda: False))
        return fixed_hints(settings, problems, seed)

    def _degradations(self, found: Mapping[str, BenchmarkResult]) -> list[Degradation]:
        settings = self.config.evaluation
        return [
            degradation_of(found[name], found[benchmark.clean], settings.seed)
            for name, benchmark in settings.benchmarks.items()
            if benchmark.clean is not None
        ]
