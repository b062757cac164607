"""Games whose hints nobody learns to write: answers without a hint, and answers under a given one.

    static_hints        hints from a file, fixed before training (Seirênes paper, section 5.3)
    cooperative_hints   the beginning of the reference solution, when the clean group fails

R1 answers the question, R3 answers it under each given hint. Both games credit alike: every group of answers to one
prompt against its own mean (Eq. 2). A question without a hint has no R3 and leaves that stream without a group.
See docs/games/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from megatron_seirenes.games.credit import (
    CreditRules,
    all_judged,
    by_asking,
    count_correct,
    relative_group,
    require_samples,
)
from megatron_seirenes.games.defaults import ANSWERS, CLEAN
from megatron_seirenes.games.game import Ask, Game, Stage, Stream
from megatron_seirenes.games.options import GameOptions
from megatron_seirenes.records import Birth, Bundle, Group, Problem, Rollout

STAGES = (ANSWERS, replace(ANSWERS, name="R3"))

STATIC_STREAMS = (CLEAN, replace(CLEAN, name="robust", trains_on="R3", needs=("R3",), balance="question"))

COOPERATIVE_STREAMS = (CLEAN, replace(CLEAN, name="guided", trains_on="R3", needs=("R1", "R3")))


def assemble_static(
    stages: Sequence[Stage], streams: Sequence[Stream], rules: CreditRules, options: GameOptions
) -> Game:
    """The game in which each question comes with the hints that `options.hints` has for it."""
    r1, r3 = stages
    hints = options.hints
    return _assemble("static_hints", (r1, replace(r3, expand=partial(_given, hints=hints))), streams, rules, hints)


def assemble_cooperative(
    stages: Sequence[Stage], streams: Sequence[Stream], rules: CreditRules, options: GameOptions
) -> Game:
    """The game that shows `options.hint_share` of the reference solution to questions that the clean group failed."""
    r1, r3 = stages
    guided = replace(r3, expand=partial(_opening, share=options.hint_share), when=_all_failed)
    return _assemble("cooperative_hints", (r1, guided), streams, rules, None)


def _assemble(
    name: str,
    stages: tuple[Stage, Stage],
    streams: Sequence[Stream],
    rules: CreditRules,
    hints: Mapping[str, Sequence[str]] | None,
) -> Game:
    r1, r3 = stages
    hinted = any("R3" in stream.needs for stream in streams)
    return Game(
        name=name,
        stages=stages,
        streams=tuple(streams),
        credit=partial(_credit, r1=r1, r3=r3, streams=tuple(streams), rules=rules),
        mastered=partial(_mastered, r1=r1, r3=r3, hinted=hinted and hints is not None),
        clean_stage="R1",
        hinted_stage="R3" if hinted else None,
        unplayable=None if hints is None or not hinted else partial(_without_hints, hints=hints),
    )


def _given(parent: Rollout | None, problem: Problem, *, hints: Mapping[str, Sequence[str]]) -> Sequence[Ask]:
    return [Ask(context={"hint": hint}) for hint in hints[problem.id]]


def _without_hints(problem: Problem, *, hints: Mapping[str, Sequence[str]]) -> str | None:
    return None if problem.id in hints else "the file of hints (game.hint_file) does not name it"


def _opening(parent: Rollout | None, problem: Problem, *, share: float) -> Sequence[Ask]:
    """Asks under the first `share` (below 1) of the solution's words; not at all when that is none of them."""
    words = str(problem.meta.get("solution", "")).split()
    shown = words[: int(len(words) * share)]
    return [Ask(context={"hint": " ".join(shown)})] if shown else []


def _all_failed(bundle: Bundle) -> bool:
    """Whether no clean answer is right: the group that teaches nothing and that a hint may open."""
    answers = bundle.of_stage("R1")
    return bool(answers) and count_correct(bundle, answers) == 0


def _credit(
    bundle: Bundle, birth: Birth, *, r1: Stage, r3: Stage, streams: Sequence[Stream], rules: CreditRules
) -> Mapping[str, Sequence[Group]]:
    clean, hinted = bundle.of_stage("R1"), bundle.of_stage("R3")
    if clean:
        require_samples(bundle, r1, clean)
    answers: dict[str, list[Sequence[Rollout]]] = {
        "R1": [clean] if clean else [],
        "R3": by_asking(bundle, r3, hinted),
    }
    return {
        stream.name: [
            relative_group(
                bundle,
                birth,
                group,
                stream=stream.name,
                rules=rules,
                path=(index,) if stream.trains_on == "R3" else (),
            )
            for index, group in enumerate(answers[stream.trains_on])
        ]
        for stream in streams
    }


def _mastered(bundle: Bundle, *, r1: Stage, r3: Stage, hinted: bool) -> bool | None:
    """All clean answers right and, in a game that always shows its hints, all answers under them."""
    clean, under_hints = bundle.of_stage("R1"), bundle.of_stage("R3")
    judged = all(answer.id in bundle.verdicts or answer.id in bundle.refused for answer in under_hints)
    if not all_judged(bundle, r1, clean) or not judged or (hinted and not under_hints):
        return None
    looked_at = (*clean, *under_hints) if hinted else clean
    return count_correct(bundle, looked_at) == len(looked_at)
