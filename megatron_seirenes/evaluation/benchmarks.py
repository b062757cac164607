"""Running the benchmarks of a configuration: read, asked, judged, summed up and written.

Every answer is kept (`answers.py`). An evaluation that knows what its answers are made with (`made_with`) goes on with
those that stand there; one during training, whose policy changes, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from megatron_seirenes.config.schema import BenchmarkSettings, Config
from megatron_seirenes.evaluation.answers import AnswerFile
from megatron_seirenes.evaluation.asking import Policy, Round, answering_stage, ask, hinting_stage, token_limit
from megatron_seirenes.evaluation.distractors import fixed_hints
from megatron_seirenes.evaluation.extraction import with_extraction
from megatron_seirenes.evaluation.identity import digest
from megatron_seirenes.evaluation.results import (
    BenchmarkResult,
    Degradation,
    Results,
    degradation_of,
    suite_of,
    summarise,
)
from megatron_seirenes.evaluation.tables import write_results
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.verifier.protocol import Judge

Hints = dict[str, str]
MakeHints = Callable[[str, Sequence[Problem]], Hints]


class Evaluator:
    """Evaluates the benchmarks of a configuration with a given engine, roles and judge.

    `make_hints(benchmark, problems)` is asked for distractors of kind `endpoint`, which an evaluation during training
    has no business making.
    """

    def __init__(
        self,
        config: Config,
        roles: Roles,
        engine: Engine,
        judge: Judge,
        chat: ChatFormat,
        *,
        make_hints: MakeHints | None = None,
        should_stop: Callable[[], bool] | None = None,
    ):
        self.config = config
        self.policy = Policy(config, roles, engine, chat)
        self.judge = judge
        self.make_hints = make_hints
        self.should_stop = should_stop

    def run_all(self, out: Path, made_with: Mapping[str, Any] | None = None) -> Results:
        """Runs every benchmark and writes `out`: answers a benchmark, results as JSON, CSV and Markdown.

        With `made_with` (what the policy is) answers that stand in `out` are not asked for again. Raises DataError for
        unusable questions or hints, UsageError for answers made with something else, CollectionStopped when told to
        stop.
        """
        settings = self.config.evaluation
        found = {name: self.run(name, benchmark, out, made_with) for name, benchmark in settings.benchmarks.items()}
        suites = tuple(
            suite_of(name, [found[member] for member in members], settings.seed)
            for name, members in settings.suites.items()
        )
        results = Results(found, suites, tuple(self._degradations(found)))
        write_results(results, out)
        return results

    def run(
        self, name: str, benchmark: BenchmarkSettings, out: Path, made_with: Mapping[str, Any] | None = None
    ) -> BenchmarkResult:
        """Asks and judges one benchmark. Raises as `run_all` does."""
        problems = read_problems(benchmark.problems, self.config.problems.bad_rows)
        seed = stable_seed(self.config.evaluation.seed, "evaluation", name)
        own_hint = benchmark.distractors is not None and benchmark.distractors.kind == "policy"
        questions = Round(
            name,
            problems,
            benchmark.samples,
            seed,
            max_tokens=benchmark.max_tokens,
            hints=self._hints(name, benchmark, problems, seed),
            own_hint=own_hint,
            own_hint_tokens=benchmark.distractors.max_tokens if benchmark.distractors else None,
        )
        extraction = benchmark.extraction or self.config.verifier.extraction
        known = None if made_with is None else {**made_with, **self._made_with(questions, extraction)}
        answers = AnswerFile(out / f"answers-{name}.jsonl", benchmark.samples, known)
        judge = with_extraction(self.judge, benchmark.extraction)
        found = ask(self.policy, judge, questions, answers, self.should_stop)
        return summarise(name, benchmark.samples, found, seed)

    def _hints(self, name: str, benchmark: BenchmarkSettings, problems: Sequence[Problem], seed: int) -> Hints | None:
        settings = benchmark.distractors
        if settings is None or settings.kind == "policy":
            return None
        if settings.kind == "endpoint" and self.make_hints is not None:
            return self.make_hints(name, problems)
        return fixed_hints(settings, problems, seed)

    def _made_with(self, questions: Round, extraction: str) -> dict[str, Any]:
        """Everything but the policy that the answers to these questions depend on."""
        config, hints = self.config, questions.hints
        stages = [answering_stage(config), *([hinting_stage(config)] if questions.own_hint else [])]
        limits = [questions.max_tokens, questions.own_hint_tokens]
        texts = (text for problem in questions.problems for text in (problem.id, problem.question, problem.answer))
        return {
            "questions": digest(texts),
            "hints": None if hints is None else digest(part for pair in hints.items() for part in pair),
            "prompts": digest(repr(self.policy.roles[stage.role].prompt) for stage in stages),
            "tokens": [given or token_limit(config, stage) for stage, given in zip(stages, limits, strict=False)],
            "samples": questions.samples,
            "sampling": [config.evaluation.temperature, config.evaluation.top_p, questions.seed],
            "verifier": {**config.verifier.equality.model_dump(), "extraction": extraction},
        }

    def _degradations(self, found: Mapping[str, BenchmarkResult]) -> list[Degradation]:
        settings = self.config.evaluation
        return [
            degradation_of(found[name], found[benchmark.clean], settings.seed)
            for name, benchmark in settings.benchmarks.items()
            if benchmark.clean is not None
        ]
