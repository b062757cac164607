"""Asking a policy questions and keeping its answers: what every evaluation does, whatever it measures.

A round is walked by the same scheduler as a game, as a game without streams: one answering stage, with the policy's own
Adversary before it or a fixed hint in its prompt where something is to stand beside the question. Seeds depend on the
round's seed and the question alone, so a round that goes on asks what the interrupted one would have asked, and a
round during training leaves the run as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from megatron_seirenes.config.schema import Config
from megatron_seirenes.evaluation.answers import AnswerFile, Provenance, Record
from megatron_seirenes.evaluation.extraction import ExtractingJudge
from megatron_seirenes.evaluation.identity import digest
from megatron_seirenes.games.game import Ask, Expand, Game, Stage
from megatron_seirenes.games.registry import default_game, game_names
from megatron_seirenes.records import Bundle, Problem, Rollout
from megatron_seirenes.roles.chat import ChatFormat
from megatron_seirenes.roles.role import Roles
from megatron_seirenes.rollouts.engine import Engine
from megatron_seirenes.rollouts.scheduler import RolloutScheduler
from megatron_seirenes.verifier.extraction import POLICIES
from megatron_seirenes.verifier.protocol import Judge

ANSWER, HINT = "answer", "hint"


@dataclass(frozen=True, slots=True)
class Round:
    """Questions that are asked `samples` times each.

    `hints` stand beside the questions, by question id; `own_hint` asks the policy's own Adversary for them instead, at
    most `own_hint_tokens` long. Null limits are those of the configured game; `extraction` is the round's own way of
    finding answers.
    """

    name: str
    problems: Sequence[Problem]
    samples: int
    seed: int
    max_tokens: int | None = None
    hints: Mapping[str, str] | None = None
    own_hint: bool = False
    own_hint_tokens: int | None = None
    extraction: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that can be asked: its engine, its chat format and the roles over it."""

    config: Config
    roles: Roles
    engine: Engine
    chat: ChatFormat


def ask(
    policy: Policy,
    judge: Judge,
    questions: Round,
    path: Path,
    made_by: Provenance | None = None,
    *,
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, list[Record]]:
    """The answers to every question, by question id in the order of the round, kept at `path` as they come.

    With `made_by` (what the policy is) answers that stand at `path` are not asked for again. Raises UsageError when
    those were made with something else, CollectionStopped when told to stop (what was finished until then is kept) and
    DataError for a question that does not fit the prompt.
    """
    game = round_game(policy.config, questions)
    records = partial(bundle_records, hints=questions.hints or {})
    if questions.extraction is not None:
        judge = ExtractingJudge(judge, POLICIES[questions.extraction])
    return _play(policy, judge, game, questions, _file(policy, game, questions, path, made_by), records, should_stop)


def ask_for_hints(
    policy: Policy,
    judge: Judge,
    questions: Round,
    path: Path,
    made_by: Provenance | None = None,
    *,
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, list[Record]]:
    """One hint a question from the policy as Adversary, as `ask`; a refused or empty one has null `sample`."""
    stage = hinting_stage(policy.config)
    limit = questions.own_hint_tokens or token_limit(policy.config, stage)
    game = _stages_alone(questions.name, Stage(HINT, stage.role, 1, limit, judged=False))
    records = partial(hint_records, refuse=policy.roles[stage.role].admit)
    return _play(policy, judge, game, questions, _file(policy, game, questions, path, made_by), records, should_stop)


def _file(policy: Policy, game: Game, questions: Round, path: Path, made_by: Provenance | None) -> AnswerFile:
    """The round's file, which knows everything that its answers depend on."""
    if made_by is None:
        return AnswerFile(path, questions.samples)
    evaluation, verifier = policy.config.evaluation, policy.config.verifier
    texts = (text for problem in questions.problems for text in (problem.id, problem.question, problem.answer))
    hints = questions.hints
    made_with = {
        **made_by,
        "questions": digest(texts),
        "hints": None if hints is None else digest(part for pair in sorted(hints.items()) for part in pair),
        "prompts": digest(repr(policy.roles[stage.role].prompt) for stage in game.stages),
        "samples": questions.samples,
        "tokens": [stage.max_tokens for stage in game.stages],
        "sampling": [evaluation.temperature, evaluation.top_p, questions.seed],
        "verifier": {**verifier.equality.model_dump(), "extraction": questions.extraction or verifier.extraction},
    }
    return AnswerFile(path, questions.samples, made_with)


def _play(
    policy: Policy,
    judge: Judge,
    game: Game,
    questions: Round,
    answers: AnswerFile,
    records: Callable[[Bundle], list[Record]],
    should_stop: Callable[[], bool] | None,
) -> dict[str, list[Record]]:
    config = policy.config
    scheduler = RolloutScheduler(
        game,
        policy.roles,
        {"shared": policy.engine},
        judge,
        policy.chat.decode,
        run_seed=questions.seed,
        temperature=config.evaluation.temperature,
        top_p=config.evaluation.top_p,
        max_prompt_tokens=config.rollout.max_prompt_tokens,
        on_bundle=lambda bundle: answers.add(bundle.problem.id, records(bundle)),
        should_stop=should_stop,
    )
    missing = [problem for problem in questions.problems if problem.id not in answers.done]
    if missing:
        scheduler.collect(missing, step=0, live=game.stages)
    return answers.finish(problem.id for problem in questions.problems)


def round_game(config: Config, questions: Round) -> Game:
    """The round as a game without streams: who answers and who hints is what the configured game says."""
    clean, hinting = answering_stage(config), hinting_stage(config)
    answer_tokens = questions.max_tokens or token_limit(config, clean)
    stages: tuple[Stage, ...]
    if questions.own_hint:
        hint_tokens = questions.own_hint_tokens or token_limit(config, hinting)
        stages = (
            Stage(HINT, hinting.role, 1, hint_tokens, judged=False),
            Stage(ANSWER, clean.role, questions.samples, answer_tokens, parent=HINT),
        )
    else:
        expand = None if questions.hints is None else _with_hints(questions.hints)
        stages = (Stage(ANSWER, clean.role, questions.samples, answer_tokens, expand=expand),)
    return _stages_alone(questions.name, *stages)


def _stages_alone(name: str, *stages: Stage) -> Game:
    """A game without streams: nothing is credited, nothing learned."""
    last = stages[-1].name
    return Game(name, stages, (), credit=lambda bundle, birth: {}, mastered=lambda bundle: None, clean_stage=last)


def answering_stage(config: Config) -> Stage:
    """The stage of the configured game that answers a bare question."""
    game = default_game(config.game.name)
    return game.stage(game.clean_stage)


def hinting_stage(config: Config) -> Stage:
    """The stage that writes hints: the configured game's, or that of the first known game that has one."""
    for name in (config.game.name, *game_names()):
        game = default_game(name)
        parent = None if game.hinted_stage is None else game.stage(game.hinted_stage).parent
        if parent is not None:
            return game.stage(parent)
    raise ValueError("no known game has a stage that writes hints")


def token_limit(config: Config, stage: Stage) -> int:
    """The response limit of a stage: the configuration's, or the game's own."""
    settings = config.game.stages.get(stage.name)
    return stage.max_tokens if settings is None or settings.max_tokens is None else settings.max_tokens


def _with_hints(hints: Mapping[str, str]) -> Expand:
    def expand(parent: Rollout | None, problem: Problem) -> Sequence[Ask]:
        return (Ask(context={"hint": hints[problem.id]}),)

    return expand


def bundle_records(bundle: Bundle, hints: Mapping[str, str]) -> list[Record]:
    """One record an answer, in order of samples; for a question without any, one that tells why. Pure."""
    own = {hint.id: hint.text for hint in bundle.of_stage(HINT)}
    common: dict[str, Any] = {
        "problem_id": bundle.problem.id,
        "question": bundle.problem.question,
        "gold": bundle.problem.answer,
        "hint": next(iter(own.values()), hints.get(bundle.problem.id)),
    }
    rollouts = bundle.of_stage(ANSWER)
    if not rollouts:
        return [common | {"sample": None, "refused": next(iter(bundle.refused.values()), "the hint is empty")}]
    return [common | _answer(bundle, rollout, sample) for sample, rollout in enumerate(rollouts)]


def _answer(bundle: Bundle, rollout: Rollout, sample: int) -> Record:
    verdict = bundle.verdicts[rollout.id]
    return {
        "sample": sample,
        "response": rollout.text,
        "response_tokens": len(rollout.response_ids),
        "extracted": verdict.extracted,
        "correct": verdict.correct,
        "reason": verdict.reason,
        "truncated": rollout.truncated,
    }


def hint_records(bundle: Bundle, refuse: Callable[[str, Problem], str | None]) -> list[Record]:
    """The record of a question's hint, readable as a file of hints; one that cannot be used tells why. Pure."""
    (hint,) = bundle.of_stage(HINT)
    reason = refuse(hint.text, bundle.problem) if hint.text else "the hint is empty"
    usable = {"sample": 0} if reason is None else {"sample": None, "refused": reason}
    return [{"problem_id": bundle.problem.id, "hint": hint.text, **usable, "truncated": hint.truncated}]
