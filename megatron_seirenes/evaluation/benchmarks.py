"""Running benchmarks: questions, clean or with a distractor beside them, rolled out and judged like training's.

A benchmark is walked by the same scheduler as a game, as a game without streams: one answering stage, with a hint from
a file, a procedural task or the policy's own Adversary before it where distractors are asked for. Every answer is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.config.schema import BenchmarkSettings, Config, DistractorSettings
from megatron_seirenes.errors import DataError
from megatron_seirenes.evaluation.statistics import Estimate, bootstrap_interval
from megatron_seirenes.games.game import Ask, Expand, Game, Stage
from megatron_seirenes.games.registry import default_game
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.problems.tasks import make_task_hints
from megatron_seirenes.records import Bundle, Problem, Rollout
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.rollouts.scheduler import RolloutScheduler
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.verifier.protocol import Judge

ANSWER, HINT = "answer", "hint"


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """One benchmark: per-question success in the order of its questions, and the answers behind it."""

    name: str
    samples: int
    question_ids: tuple[str, ...]
    success: tuple[float, ...]
    estimate: Estimate
    answers: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Results:
    """All benchmarks of one evaluation, by name."""

    benchmarks: Mapping[str, BenchmarkResult]

    def metrics(self) -> dict[str, float | None]:
        return {f"evaluation/{name}/avg@{r.samples}": r.estimate.mean for name, r in self.benchmarks.items()}


class Evaluator:
    """Evaluates the benchmarks of a configuration with a given engine, roles and judge."""

    def __init__(self, config: Config, roles: Roles, engine: Engine, judge: Judge, chat: ChatFormat):
        self.config = config
        self.roles = roles
        self.engine = engine
        self.judge = judge
        self.chat = chat

    def run_all(self, out: Path) -> Results:
        """Runs every benchmark and writes `out` (results.json, answers a benchmark). Raises DataError."""
        settings = self.config.evaluation
        results = Results({name: self.run(name, benchmark) for name, benchmark in settings.benchmarks.items()})
        write_results(results, out)
        return results

    def run(self, name: str, benchmark: BenchmarkSettings) -> BenchmarkResult:
        """Rolls out and judges one benchmark. Raises DataError for unusable questions or hints."""
        problems = read_problems(benchmark.problems, self.config.problems.bad_rows)
        seed = stable_seed(self.config.evaluation.seed, "evaluation", name)
        game = self._game(name, benchmark, problems, seed)
        scheduler = RolloutScheduler(
            game,
            self.roles,
            {"shared": self.engine},
            self.judge,
            self.chat.decode,
            run_seed=seed,
            temperature=self.config.evaluation.temperature,
            top_p=self.config.evaluation.top_p,
            max_prompt_tokens=self.config.rollout.max_prompt_tokens,
        )
        bundles = scheduler.collect(problems, step=0, live=game.stages)
        return summarise(name, benchmark.samples, bundles, seed)

    def _game(self, name: str, benchmark: BenchmarkSettings, problems: Sequence[Problem], seed: int) -> Game:
        """The benchmark as a game without streams; token limits default to those of the training game's stages."""
        configured = default_game(self.config.game.name)
        limits = {stage: settings.max_tokens for stage, settings in self.config.game.stages.items()}
        answer_limit = benchmark.max_tokens or limits.get(configured.clean_stage)
        answer_limit = answer_limit or configured.stage(configured.clean_stage).max_tokens
        distractors = benchmark.distractors
        stages: tuple[Stage, ...]
        if distractors is None:
            stages = (Stage(ANSWER, "reasoner", benchmark.samples, answer_limit),)
        elif distractors.kind == "policy":
            hint_limit = distractors.max_tokens or limits.get("R2") or 2_048
            stages = (
                Stage(HINT, "adversary", 1, hint_limit, judged=False),
                Stage(ANSWER, "reasoner", benchmark.samples, answer_limit, parent=HINT),
            )
        else:
            expand = _with_hints(problems, fixed_hints(distractors, problems, seed))
            stages = (Stage(ANSWER, "reasoner", benchmark.samples, answer_limit, expand=expand),)
        return Game(name, stages, (), credit=lambda bundle, birth: {}, mastered=lambda bundle: None, clean_stage=ANSWER)


def fixed_hints(distractors: DistractorSettings, problems: Sequence[Problem], seed: int) -> dict[str, str]:
    """One hint a question, from a JSONL file of {"problem_id", "hint"} or a procedural task. Raises DataError."""
    if distractors.kind == "task":
        hints = make_task_hints(distractors.name or "", problems, seed)
        return {problem.id: hint for problem, hint in zip(problems, hints, strict=True)}
    if distractors.path is None:
        raise DataError("evaluation.benchmarks: distractors of kind file need a path")
    found = read_hint_file(Path(distractors.path))
    missing = [problem.id for problem in problems if problem.id not in found]
    if missing:
        raise DataError(f"{distractors.path}: no hint for question {missing[0]} ({len(missing)} questions lack one)")
    return {problem.id: found[problem.id] for problem in problems}


def read_hint_file(path: Path) -> dict[str, str]:
    """Hints by question id. Raises DataError naming the row."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    hints: dict[str, str] = {}
    for row, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            hints[str(record["problem_id"])] = str(record["hint"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: row {row}: expected an object with problem_id and hint") from None
    return hints


def _with_hints(problems: Sequence[Problem], hints: Mapping[str, str]) -> Expand:
    def expand(parent: Rollout | None, problem: Problem) -> Sequence[Ask]:
        return (Ask(context={"hint": hints[problem.id]}),)

    return expand


def summarise(name: str, samples: int, bundles: Sequence[Bundle], seed: int) -> BenchmarkResult:
    """Success by question. A question whose own hint was refused or empty has no answers and is left out."""
    success: list[float] = []
    ids: list[str] = []
    answers: list[dict[str, Any]] = []
    for bundle in bundles:
        rollouts = bundle.of_stage(ANSWER)
        if not rollouts:
            continue
        hints = {hint.id: hint.text for hint in bundle.of_stage(HINT)}
        success.append(sum(bundle.verdicts[r.id].correct for r in rollouts) / len(rollouts))
        ids.append(bundle.problem.id)
        answers.extend(_answer_record(bundle, rollout, hints) for rollout in rollouts)
    if not success:
        raise DataError(f"evaluation.benchmarks.{name}: no question was answered")
    return BenchmarkResult(name, samples, tuple(ids), tuple(success), bootstrap_interval(success, seed), tuple(answers))


def _answer_record(bundle: Bundle, rollout: Rollout, hints: Mapping[str, str]) -> dict[str, Any]:
    verdict = bundle.verdicts[rollout.id]
    return {
        "problem_id": bundle.problem.id,
        "question": bundle.problem.question,
        "gold": bundle.problem.answer,
        "hint": hints.get(rollout.request.parent or ""),
        "response": rollout.text,
        "extracted": verdict.extracted,
        "correct": verdict.correct,
        "reason": verdict.reason,
        "truncated": rollout.truncated,
    }


def write_results(results: Results, out: Path) -> None:
    """Writes results.json and, a benchmark, answers-NAME.jsonl into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    summary = {}
    for name, result in results.benchmarks.items():
        summary[name] = {
            "metric": f"avg@{result.samples}",
            "questions": len(result.question_ids),
            "mean": result.estimate.mean,
            "low": result.estimate.low,
            "high": result.estimate.high,
            "success": dict(zip(result.question_ids, result.success, strict=True)),
        }
        lines = (json.dumps(answer, ensure_ascii=False) for answer in result.answers)
        (out / f"answers-{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "results.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
