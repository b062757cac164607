"""The Seirênes game: one policy writes misleading hints and solves in spite of them (docs/games/seirenes.md).

R1 answers the question, R2 writes hints for it, R3 answers it under each hint. Three streams learn from that: clean
(Eq. 9), adversary (Eq. 11, 12) and robust (Eq. 13). A stage that was not run leaves the streams that need it without
groups; nothing else about the other streams changes, so credit never depends on which queues are full.

Options (`GameOptions`): the Adversary's credit, which hints enter the robust update, and a memory of strong hints. With
a memory, questions with remembered hints are not given new ones: a stage M3, R3's twin without a parent, answers under
the remembered ones, and its groups enter the robust stream like those of R3; without that stream nothing is remembered.

How a hint fares: *refused* by the role's gate, it earns the role's penalty and has no answers; *empty*, it has neither
answers nor credit; otherwise, truncated or not, it has exactly G3 judged answers, and anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from megatron_seirenes.games.credit import (
    CreditRules,
    all_judged,
    by_asking,
    count_correct,
    group_id,
    relative_group,
    require_samples,
)
from megatron_seirenes.games.defaults import ANSWERS, CLEAN
from megatron_seirenes.games.game import Game, Stage, Stream
from megatron_seirenes.games.memory import HintMemory
from megatron_seirenes.games.options import AdversaryCredit, GameOptions, RobustHints
from megatron_seirenes.objectives.advantages import group_advantages, has_signal
from megatron_seirenes.records import Birth, Bundle, Group, Rollout

STAGES = (
    ANSWERS,
    Stage(name="R2", role="adversary", samples=2, max_tokens=2_048, judged=False),
    replace(ANSWERS, name="R3", parent="R2"),
)

STREAMS = (
    CLEAN,
    replace(
        CLEAN,
        name="adversary",
        trains_on="R2",
        needs=("R1", "R2", "R3"),
        objective="reinforce",
        flush=256,
        capacity=1_024,
        unit="hints",
    ),
    replace(CLEAN, name="robust", trains_on="R3", needs=("R2", "R3"), balance="question"),
)


def assemble(stages: Sequence[Stage], streams: Sequence[Stream], rules: CreditRules, options: GameOptions) -> Game:
    """The game over these stages and streams, which are `STAGES` and some of `STREAMS` with other numbers."""
    hinted = any("R3" in stream.needs for stream in streams)
    by_name = {stage.name: stage for stage in stages}
    memory = None
    if options.memory is not None and any(stream.trains_on == "R3" for stream in streams):
        memory = HintMemory(options.memory, by_name["R2"].samples, partial(_strong_hints, r3=by_name["R3"]))
        by_name["R2"] = replace(by_name["R2"], expand=memory.ask_anew)
        by_name["M3"] = replace(by_name["R3"], name="M3", parent=None, expand=memory.ask_again)
    play = _Play(by_name, tuple(stream.name for stream in streams), rules, options.adversary, options.robust_hints)
    return Game(
        name="seirenes",
        stages=tuple(by_name.values()),
        streams=tuple(_adapted(stream, options, memory is not None) for stream in streams),
        credit=partial(_credit, play=play),
        mastered=partial(_mastered, stages=by_name, criterion=rules.mastery if hinted else "clean"),
        clean_stage="R1",
        hinted_stage="R3" if hinted else None,
        memory=memory,
    )


@dataclass(frozen=True, slots=True)
class _Play:
    """What credit reads beside the bundle."""

    stages: Mapping[str, Stage]
    streams: tuple[str, ...]
    rules: CreditRules
    adversary: AdversaryCredit
    robust_hints: RobustHints


def _adapted(stream: Stream, options: GameOptions, remembers: bool) -> Stream:
    """The stream as the options want it: a grouped Adversary is clipped like the others, and counts questions."""
    if stream.name == "adversary" and options.adversary == "group_relative":
        return replace(stream, objective="clipped", unit="groups")
    if stream.name != "robust":
        return stream
    wanted = {"R1"} if options.robust_hints == "misleading" else set()
    wanted |= {"M3"} if remembers else set()
    return replace(stream, needs=(*stream.needs, *sorted(wanted)))


def _credit(bundle: Bundle, birth: Birth, *, play: _Play) -> Mapping[str, Sequence[Group]]:
    clean = bundle.of_stage("R1")
    if clean:
        require_samples(bundle, play.stages["R1"], clean)
    hints = bundle.of_stage("R2")
    if hints:
        require_samples(bundle, play.stages["R2"], hints)
    answers = {hint.id: _answers(bundle, hint, play.stages["R3"]) for hint in hints}
    groups = {
        "clean": [relative_group(bundle, birth, clean, stream="clean", rules=play.rules)] if clean else [],
        "adversary": _adversary_groups(bundle, birth, hints, answers, play) if clean else [],
        "robust": _robust_groups(bundle, birth, hints, answers, play),
    }
    return {name: groups[name] for name in play.streams}


def _adversary_groups(
    bundle: Bundle,
    birth: Birth,
    hints: Sequence[Rollout],
    answers: Mapping[str, Sequence[Rollout]],
    play: _Play,
) -> list[Group]:
    """One group a hint that earned something (Eq. 12), or, group-relative, one for all such hints of the question."""
    clean = bundle.of_stage("R1")
    groups = [
        _hint_group(bundle, birth, hint, clean, answers[hint.id], play.rules)
        for hint in hints
        if answers[hint.id] or hint.id in bundle.refused
    ]
    if play.adversary == "reinforce" or not groups:
        return groups
    rewards = tuple(group.rewards[0] for group in groups)
    return [
        replace(
            groups[0],
            id=group_id(bundle, "R2"),
            rollouts=tuple(group.rollouts[0] for group in groups),
            rewards=rewards,
            advantages=group_advantages(rewards, epsilon=play.rules.advantage_epsilon, kind=play.rules.advantage),
            has_signal=has_signal(rewards),
        )
    ]


def _robust_groups(
    bundle: Bundle,
    birth: Birth,
    hints: Sequence[Rollout],
    answers: Mapping[str, Sequence[Rollout]],
    play: _Play,
) -> list[Group]:
    """H_q of Eq. 13: the chosen hints' answers, a group each; those under remembered hints always."""
    chosen = _chosen(bundle, [hint for hint in hints if answers[hint.id]], answers, play.robust_hints)
    groups = [(hint.request.path, answers[hint.id]) for hint in chosen]
    if "M3" in play.stages:
        again = by_asking(bundle, play.stages["M3"], bundle.of_stage("M3"))
        groups += [((index,), answered) for index, answered in enumerate(again)]
    return [
        relative_group(bundle, birth, answered, stream="robust", rules=play.rules, path=path)
        for path, answered in groups
    ]


def _chosen(
    bundle: Bundle, hints: Sequence[Rollout], answers: Mapping[str, Sequence[Rollout]], which: RobustHints
) -> Sequence[Rollout]:
    """The hints that enter the robust update, in their order; the first of equally strong ones is the strongest."""
    if which == "misleading":
        return [hint for hint in hints if _gained(bundle, answers[hint.id]) > 0]
    if which == "strongest":
        return sorted(hints, key=lambda hint: count_correct(bundle, answers[hint.id]))[:1]
    return hints


def _gained(bundle: Bundle, under_hint: Sequence[Rollout]) -> int:
    """c1 G3 - c3 G1: the Adversary's reward (Eq. 11) times G1 G3, in whole numbers."""
    clean = bundle.of_stage("R1")
    return count_correct(bundle, clean) * len(under_hint) - count_correct(bundle, under_hint) * len(clean)


def _strong_hints(bundle: Bundle, min_delta: float, *, r3: Stage) -> list[str]:
    """The texts of the fresh hints under which the Reasoner lost at least `min_delta` (Eq. 11)."""
    clean = bundle.of_stage("R1")
    return [
        hint.text
        for hint in bundle.of_stage("R2")
        if clean
        and (under_hint := _answers(bundle, hint, r3))
        and _gained(bundle, under_hint) >= min_delta * len(clean) * len(under_hint)
    ]


def _answers(bundle: Bundle, hint: Rollout, r3: Stage) -> tuple[Rollout, ...]:
    """The R3 answers under one hint: all G3 of them, or none when it was refused or is empty."""
    answers = bundle.children("R3", hint)
    if hint.id in bundle.refused or not hint.text.strip():
        if answers:
            raise ValueError(f"problem {bundle.problem.id}, step {bundle.step}: hint {hint.id} must have no answers")
        return ()
    require_samples(bundle, r3, answers, under=f" under hint {hint.id}")
    return answers


def _hint_group(
    bundle: Bundle,
    birth: Birth,
    hint: Rollout,
    clean: Sequence[Rollout],
    under_hint: Sequence[Rollout],
    rules: CreditRules,
) -> Group:
    """One hint as a group of its own, whose advantage is its reward: Eq. 11, or the penalty when it was refused.

    Whether the hint carries signal is decided on integer counts, c1 G3 against c3 G1, not on a difference of floats.
    """
    if hint.id in bundle.refused:
        reward = rules.penalty(hint.request.role)
        signal = reward != 0
    else:
        gained = _gained(bundle, under_hint)
        reward = gained / (len(clean) * len(under_hint))
        signal = gained != 0
    return Group(
        id=group_id(bundle, "R2", hint.request.path),
        problem_id=bundle.problem.id,
        stream="adversary",
        stage="R2",
        rollouts=(hint,),
        rewards=(reward,),
        advantages=(reward,),
        has_signal=signal,
        birth=birth,
    )


def _mastered(bundle: Bundle, *, stages: Mapping[str, Stage], criterion: str) -> bool | None:
    """Eq. 14. None when an answer that the criterion looks at was not asked for or has no verdict.

    `all_hints`: every clean answer and every answer under each of the G2 hints is correct; a refused or an empty hint
    tested nothing, so then it cannot tell. `paper`: Eq. 14 to the letter looks only at hints whose answers survive the
    zero-signal filter, that is, are neither all right nor all wrong; such a hint has failures, so there must be none.
    `clean`: the clean answers alone.
    """
    clean = bundle.of_stage("R1")
    if not all_judged(bundle, stages["R1"], clean):
        return None
    solved = count_correct(bundle, clean) == len(clean)
    if criterion == "clean":
        return solved
    hints = bundle.of_stage("R2")
    tested = [bundle.children("R3", hint) for hint in hints if hint.id not in bundle.refused and hint.text.strip()]
    if len(hints) != stages["R2"].samples or not all(all_judged(bundle, stages["R3"], answers) for answers in tested):
        return None
    counts = [count_correct(bundle, answers) for answers in tested]
    samples = stages["R3"].samples
    if criterion == "paper":
        return solved and not any(0 < count < samples for count in counts)
    if len(tested) != len(hints):
        return None
    return solved and all(count == samples for count in counts)
