"""`seirenes attack`: the hints of one policy against another model (paper, Table 5).

The policy writes one hint a question; the target answers every question clean and hinted, avg@k each, and the attack
is hinted − clean. The target is a model folder or an OpenAI-compatible endpoint. Hints and answers are kept under
RUN_DIR/attack/ as they come: an interrupted attack goes on, and nothing is asked twice. Benchmarks whose questions
already have distractors are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import ConfigError, StoppedBySignal
from megatron_seirenes.evaluation.answers import Record
from megatron_seirenes.evaluation.asking import Round, answering_stage, ask, ask_for_hints, hinting_stage
from megatron_seirenes.evaluation.attack_results import AttackResult, attack_markdown, attack_on, write_attack
from megatron_seirenes.evaluation.distractors import read_hint_file
from megatron_seirenes.evaluation.endpoint import Endpoint
from megatron_seirenes.evaluation.endpoint_target import answers_of_endpoint
from megatron_seirenes.evaluation.extraction import ExtractingJudge
from megatron_seirenes.evaluation.opening import open_for_questions
from megatron_seirenes.evaluation.results import summarise
from megatron_seirenes.problems.readers import read_problems
from megatron_seirenes.records import Problem
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.seeds import stable_seed
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.runtime import open_judge
from megatron_seirenes.trainer.signals import StopListener
from megatron_seirenes.verifier.extraction import POLICIES
from megatron_seirenes.verifier.protocol import Judge

Hints = Mapping[str, str]
Answers = Mapping[str, Sequence[Record]]
Target = Callable[[str, Sequence[Problem], Hints], tuple[Answers, Answers]]
"""Asked with a benchmark, its questions and their hints; answers clean and hinted."""


def attack(config: Config) -> list[AttackResult]:
    """Attacks the target on every benchmark without distractors, prints and writes the table. Goes on where it stopped.

    Raises ConfigError without a target or a benchmark, DataError, StoppedBySignal.
    """
    benchmarks = _attacked(config)
    directory = RunDirectory.of(config)
    out = directory.path / "attack"
    problems = {name: read_problems(benchmarks[name].problems, config.problems.bad_rows) for name in benchmarks}
    with ExitStack() as stack:
        stop = stack.enter_context(StopListener())
        judge = open_judge(config, stack)
        try:
            hints = _hints(config, directory, problems, judge, lambda: stop.requested)
            results, spent = _answers(config, directory, problems, hints, judge, lambda: stop.requested)
        except CollectionStopped:
            raise StoppedBySignal(
                f"stopped by a signal; hints and answers are kept in {out}; the same command goes on"
            ) from None
    write_attack(results, spent, out)
    Console().print(Markdown(attack_markdown(results, spent)))
    print(f"hints, every answer and the table: {out}")
    return results


def _attacked(config: Config) -> dict:
    settings = config.evaluation
    benchmarks = {name: one for name, one in settings.benchmarks.items() if one.distractors is None}
    faults = [] if benchmarks else ["evaluation.benchmarks: none without distractors is named"]
    if (settings.attack.target is None) == (settings.attack.endpoint is None):
        faults.append("evaluation.attack: give either target (a model folder) or endpoint")
    if faults:
        raise ConfigError("attack", faults)
    return benchmarks


# -- hints


def _hints(
    config: Config,
    directory: RunDirectory,
    problems: Mapping[str, Sequence[Problem]],
    judge: Judge,
    should_stop: Callable[[], bool],
) -> dict[str, Hints]:
    """The usable hints of every benchmark, from the configured file or from the policy as Adversary."""
    given = config.evaluation.attack.hints
    if given is not None:
        found = read_hint_file(Path(given))
        return {name: {p.id: found[p.id] for p in some if p.id in found} for name, some in problems.items()}
    hints: dict[str, Hints] = {}
    with ExitStack() as stack:
        policy, made_by = open_for_questions(config, directory, [hinting_stage(config).role], stack)
        for name, some in problems.items():
            questions = Round(name, some, 1, stable_seed(config.evaluation.seed, "attack_hints", name))
            path = directory.path / "attack" / f"hints-{name}.jsonl"
            made = ask_for_hints(policy, judge, questions, path, made_by, should_stop=should_stop)
            hints[name] = {key: one["hint"] for key, (one,) in made.items() if one["sample"] is not None}
    return hints


# -- answers


def _answers(
    config: Config,
    directory: RunDirectory,
    problems: Mapping[str, Sequence[Problem]],
    hints: Mapping[str, Hints],
    judge: Judge,
    should_stop: Callable[[], bool],
) -> tuple[list[AttackResult], float | None]:
    """The attack on every benchmark, and what it cost (null for a local target)."""
    settings, out = config.evaluation, directory.path / "attack"
    spent: float | None = None
    results = []
    with ExitStack() as stack:
        if settings.attack.endpoint is not None:
            endpoint = stack.enter_context(Endpoint(settings.attack.endpoint, out / "requests.jsonl"))
            target = _endpoint_target(config, endpoint, judge, out, should_stop)
        else:
            target = _local_target(config, directory, judge, stack, should_stop)
        for name, some in problems.items():
            attacked = [problem for problem in some if problem.id in hints[name]]
            seed = stable_seed(settings.seed, "attack", name)
            clean, hinted = (
                summarise(name, settings.attack.samples, answers, seed)
                for answers in target(name, attacked, hints[name])
            )
            results.append(attack_on(clean, hinted, len(some) - len(attacked), seed))
        if settings.attack.endpoint is not None:
            spent = endpoint.spent
    return results, spent


def _endpoint_target(
    config: Config, endpoint: Endpoint, judge: Judge, out: Path, should_stop: Callable[[], bool]
) -> Target:
    def answer(name: str, problems: Sequence[Problem], hints: Hints) -> tuple[Answers, Answers]:
        extraction = config.evaluation.benchmarks[name].extraction
        own = judge if extraction is None else ExtractingJudge(judge, POLICIES[extraction])

        def under(kind: str, some: Hints | None) -> Answers:
            path = out / f"answers-{kind}-{name}.jsonl"
            return answers_of_endpoint(config, endpoint, own, problems, some, path, should_stop)

        return under("clean", None), under("hinted", hints)

    return answer


def _local_target(
    config: Config, directory: RunDirectory, judge: Judge, stack: ExitStack, should_stop: Callable[[], bool]
) -> Target:
    target = config.evaluation.attack.target
    config = config.model_copy(update={"model": config.model.model_copy(update={"path": target, "new": None})})
    policy, made_by = open_for_questions(config, directory, [answering_stage(config).role], stack)

    def answer(name: str, problems: Sequence[Problem], hints: Hints) -> tuple[Answers, Answers]:
        settings = config.evaluation.benchmarks[name]
        seed = stable_seed(config.evaluation.seed, "attack", name)

        def under(kind: str, some: Hints | None) -> Answers:
            questions = Round(
                name,
                problems,
                config.evaluation.attack.samples,
                seed,
                max_tokens=settings.max_tokens,
                hints=some,
                extraction=settings.extraction,
            )
            path = directory.path / "attack" / f"answers-{kind}-{name}.jsonl"
            return ask(policy, judge, questions, path, made_by, should_stop=should_stop)

        return under("clean", None), under("hinted", hints)

    return answer
