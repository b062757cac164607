"""What one collection step's bundles say: success, attack, hints, lengths, judging. Pure.

Bundles may be spread over ranks: each rank makes a `Tally` of its own, tallies are added, and the sum is turned into
metrics. Success is summed in exact fractions, so the metrics are the same however the bundles were split and in
whatever order the tallies are added (`verifier/seconds`, a time, apart).

A success rate counts the rollouts that have a verdict; a prompt without any verdict does not count. Which stage is
clean and which is hinted is the game's word; a hint is a rollout of the hinted stage's parent.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from megatron_seirenes.games.game import Game
from megatron_seirenes.observe.metrics import Value
from megatron_seirenes.records import Bundle, Rollout, Verdict

STRONG_ATTACK = Fraction(1, 20)
"""Appendix E: a step is a strong-attack step when attack/delta is above this."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A sum of success rates and their number."""

    total: Fraction = Fraction(0)
    count: int = 0

    def __add__(self, other: Rates) -> Rates:
        return Rates(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Fraction | None:
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Responses of a stage: their number, tokens together, the longest, and how many were cut."""

    count: int = 0
    tokens: int = 0
    longest: int = 0
    truncated: int = 0

    def __add__(self, other: Lengths) -> Lengths:
        return Lengths(
            self.count + other.count,
            self.tokens + other.tokens,
            max(self.longest, other.longest),
            self.truncated + other.truncated,
        )


@dataclass(frozen=True, slots=True)
class Judging:
    """Verdicts: their number, two of the reasons, and CPU seconds."""

    judged: int = 0
    timeouts: int = 0
    no_answer: int = 0
    seconds: float = 0.0

    def __add__(self, other: Judging) -> Judging:
        return Judging(
            self.judged + other.judged,
            self.timeouts + other.timeouts,
            self.no_answer + other.no_answer,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over bundles, to be added over ranks. `hints` counts hint texts by digest."""

    clean: Rates = Rates()
    hinted: Rates = Rates()
    hints: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    lengths: Mapping[str, Lengths] = field(default_factory=dict)
    judging: Judging = Judging()
    generated: int = 0

    def __add__(self, other: Tally) -> Tally:
        stages = [*self.lengths, *(name for name in other.lengths if name not in self.lengths)]
        return Tally(
            clean=self.clean + other.clean,
            hinted=self.hinted + other.hinted,
            hints=Counter(self.hints) + Counter(other.hints),
            refused=self.refused + other.refused,
            lengths={name: self.lengths.get(name, Lengths()) + other.lengths.get(name, Lengths()) for name in stages},
            judging=self.judging + other.judging,
            generated=self.generated + other.generated,
        )


def collection_metrics(game: Game, bundles: Sequence[Bundle]) -> dict[str, Value]:
    """The metrics of one collection step that follow from its bundles; null where nothing ran."""
    return tally_metrics(game, tally_bundles(game, bundles))


def tally_bundles(game: Game, bundles: Iterable[Bundle]) -> Tally:
    """Sums over `bundles`; what `tally_metrics` needs of them."""
    return sum((_tally_bundle(game, bundle) for bundle in bundles), Tally())


def tally_metrics(game: Game, tally: Tally) -> dict[str, Value]:
    """The metrics of the whole step, from the sum of every rank's tally."""
    clean, hinted = tally.clean.mean, tally.hinted.mean
    delta = None if clean is None or hinted is None else clean - hinted
    row: dict[str, Value] = {
        "success/clean": _number(clean),
        "success/hinted": _number(hinted),
        "attack/delta": _number(delta),
        "attack/strong": None if delta is None else int(delta > STRONG_ATTACK),
    }
    row.update(_hint_metrics(tally))
    for stage in game.stages:
        row.update(_length_metrics(stage.name, tally.lengths.get(stage.name, Lengths())))
    row["verifier/judged"] = tally.judging.judged
    row["verifier/timeouts"] = tally.judging.timeouts
    row["verifier/no_answer"] = tally.judging.no_answer
    row["verifier/seconds"] = tally.judging.seconds
    row["tokens/generated"] = tally.generated
    return row


def _tally_bundle(game: Game, bundle: Bundle) -> Tally:
    hints = _hints(game, bundle)
    rollouts = [rollout for stage in game.stages for rollout in bundle.of_stage(stage.name)]
    drawn = (len(rollout.response_ids) for rollout in rollouts if rollout.request.given_ids is None)
    return Tally(
        clean=_rates(bundle, game.clean_stage),
        hinted=Rates() if game.hinted_stage is None else _rates(bundle, game.hinted_stage),
        hints=Counter(_digest(hint.text) for hint in hints),
        refused=sum(hint.id in bundle.refused for hint in hints),
        lengths={stage.name: _lengths(bundle.of_stage(stage.name)) for stage in game.stages},
        judging=sum((_judging(verdict) for verdict in bundle.verdicts.values()), Judging()),
        generated=sum(drawn),
    )


def _rates(bundle: Bundle, stage: str) -> Rates:
    """The success rate of each prompt of the stage: one for the question, or one for each of its hints."""
    prompts: dict[tuple[str | None, tuple[int, ...]], list[bool]] = defaultdict(list)
    for rollout in bundle.of_stage(stage):
        verdict = bundle.verdicts.get(rollout.id)
        if verdict is not None:
            prompts[rollout.request.parent, rollout.request.prompt_ids].append(verdict.correct)
    return Rates(sum((Fraction(sum(marks), len(marks)) for marks in prompts.values()), Fraction(0)), len(prompts))


def _hints(game: Game, bundle: Bundle) -> tuple[Rollout, ...]:
    parent = None if game.hinted_stage is None else game.stage(game.hinted_stage).parent
    return () if parent is None else bundle.of_stage(parent)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _lengths(rollouts: Sequence[Rollout]) -> Lengths:
    sizes = [len(rollout.response_ids) for rollout in rollouts]
    return Lengths(len(sizes), sum(sizes), max(sizes, default=0), sum(rollout.truncated for rollout in rollouts))


def _judging(verdict: Verdict) -> Judging:
    return Judging(1, int(verdict.reason == "timeout"), int(verdict.reason == "no_answer"), verdict.seconds)


def _hint_metrics(tally: Tally) -> dict[str, Value]:
    count = sum(tally.hints.values())
    if not count:
        return {"hints/distinct_fraction": None, "hints/entropy": None, "hints/refused_fraction": None}
    shares = [number / count for number in sorted(tally.hints.values())]
    return {
        "hints/distinct_fraction": len(tally.hints) / count,
        "hints/entropy": math.fsum(share * math.log(1 / share) for share in shares),
        "hints/refused_fraction": tally.refused / count,
    }


def _length_metrics(stage: str, lengths: Lengths) -> dict[str, Value]:
    ran = lengths.count > 0
    return {
        f"length/{stage}/mean": lengths.tokens / lengths.count if ran else None,
        f"length/{stage}/max": lengths.longest if ran else None,
        f"truncated/{stage}": lengths.truncated / lengths.count if ran else None,
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
