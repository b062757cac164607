"""Where the text beside a benchmark's questions comes from, other than from the policy itself: one hint a question.

An endpoint is asked once for each question (paper, Appendix C) and its distractors are kept as a file of hints; who
has the file needs no endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from megatron_seirenes.config.schema import Config, DistractorSettings
from megatron_seirenes.errors import DataError, StoppedBySignal
from megatron_seirenes.evaluation.endpoint import Endpoint, Question
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.problems.tasks import make_task_hints
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.prompt import load_prompt
from megatron_seirenes.rollouts.scheduler import CollectionStopped


def fixed_hints(settings: DistractorSettings, problems: Sequence[Problem], seed: int) -> dict[str, str]:
    """One hint a question, by question id, from a file, the questions' own column or a task.

    Raises DataError when a question has none.
    """
    if settings.kind == "task":
        hints = make_task_hints(settings.name or "", problems, seed)
        return {problem.id: hint for problem, hint in zip(problems, hints, strict=True)}
    if settings.kind == "column":
        found = {p.id: str(p.meta["distractor"]) for p in problems if p.meta.get("distractor")}
        return hints_of(problems, found, "distractors of kind column")
    if settings.path is None:
        raise DataError(f"evaluation.benchmarks: distractors of kind {settings.kind} need a path")
    return hints_of(problems, read_hint_file(Path(settings.path)), settings.path)


def hints_of(problems: Sequence[Problem], found: Mapping[str, str], place: str) -> dict[str, str]:
    """The hints of these questions, in their order. Raises DataError when one is missing."""
    missing = [problem.id for problem in problems if problem.id not in found]
    if missing:
        raise DataError(f"{place}: no hint for question {missing[0]} ({len(missing)} questions lack one)")
    return {problem.id: found[problem.id] for problem in problems}


def read_hint_file(path: Path) -> dict[str, str]:
    """Hints by question id, of a JSONL file of {"problem_id", "hint"}. Raises DataError naming the row."""
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


def endpoint_hints(
    settings: DistractorSettings, problems: Sequence[Problem], should_stop: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """One distractor a question from the file at `path`, those that are missing made by the endpoint and added to it.

    Raises DataError for an empty distractor, and as `Endpoint.answer` does.
    """
    if settings.path is None or settings.endpoint is None:
        raise DataError("evaluation.benchmarks: distractors of kind endpoint need a path and an endpoint")
    path = Path(settings.path)
    known = read_hint_file(path) if path.exists() else {}
    missing = [problem for problem in problems if problem.id not in known]
    if missing:
        prompt = load_prompt(settings.prompt)
        questions = [Question(tuple(prompt.messages(problem.question, {}))) for problem in missing]
        with Endpoint(settings.endpoint, path.with_suffix(".requests.jsonl")) as endpoint:
            replies = endpoint.answer(questions, should_stop)
        made = {problem.id: reply.text.strip() for problem, reply in zip(missing, replies, strict=True)}
        empty = [question for question, hint in made.items() if not hint]
        if empty:
            raise DataError(f"{settings.endpoint.model}: an empty distractor for {empty[0]} ({len(empty)} in all)")
        known |= made
        lines = (
            json.dumps({"problem_id": key, "hint": hint}, ensure_ascii=False) + "\n" for key, hint in known.items()
        )
        path.write_text("".join(lines), encoding="utf-8")
    return {problem.id: known[problem.id] for problem in problems}


def make_endpoint_distractors(config: Config, should_stop: Callable[[], bool]) -> None:
    """Makes what benchmarks want of endpoints, so that no evaluation asks one. Raises as `endpoint_hints` does,
    StoppedBySignal when told to stop."""
    try:
        for benchmark in config.evaluation.benchmarks.values():
            if benchmark.distractors is not None and benchmark.distractors.kind == "endpoint":
                problems = read_problems(benchmark.problems, config.problems.bad_rows)
                endpoint_hints(benchmark.distractors, problems, should_stop)
    except CollectionStopped:
        raise StoppedBySignal("stopped by a signal while distractors were made; those that came are kept") from None
