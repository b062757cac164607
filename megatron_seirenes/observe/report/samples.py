"""A few bundles of a run to read: the clean answer, each hint and an answer under it, side by side.

Knows no game by name: the stage without a parent whose answers are judged is the clean one, a rollout that others name
as their parent is a hint. Choice and shortening are deterministic; what a model wrote stays plain text here, and is
escaped where it enters the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megatron_seirenes.observe.records import Record, read_records

BUNDLES_A_STEP = 4
TEXT_LIMIT = 3_000


@dataclass(frozen=True, slots=True)
class Answer:
    """One response with what became of it, and how many of its group were correct."""

    record: Record
    correct: int
    judged: int


@dataclass(frozen=True, slots=True)
class HintSample:
    """A hint and an answer under it; no answer when the hint was refused or empty."""

    hint: Record
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class BundleSample:
    """What one question produced in one step, to be shown."""

    step: int
    problem_id: str
    question: str
    gold: str
    clean: Answer | None
    hints: tuple[HintSample, ...]

    @property
    def gap(self) -> float:
        """The largest share of success that a hint took away."""
        if self.clean is None or not self.clean.judged:
            return 0.0
        clean = self.clean.correct / self.clean.judged
        under = [hint.answer.correct / hint.answer.judged for hint in self.hints if hint.answer and hint.answer.judged]
        return max((clean - rate for rate in under), default=0.0)


def choose_samples(files: Sequence[Path], limit: int = BUNDLES_A_STEP) -> list[BundleSample]:
    """Bundles of the first and the last recorded step, newest first: those whose hints misled most first."""
    ends = dict.fromkeys((files[-1], files[0])) if files else {}
    return [sample for path in ends for sample in _choose(read_records(path), limit)]


def bundle_samples(records: Iterable[Record]) -> list[BundleSample]:
    """Every bundle of one step's records."""
    questions: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        questions[record["problem_id"]].append(record)
    return [_bundle(members) for members in questions.values()]


def shorten(text: str, limit: int = TEXT_LIMIT) -> str:
    """The beginning and the end of a text that is longer than `limit` characters: the answer stands at the end."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def _choose(records: Iterable[Record], limit: int) -> list[BundleSample]:
    return sorted(bundle_samples(map(_light, records)), key=lambda sample: (-sample.gap, sample.problem_id))[:limit]


def _light(record: Record) -> Record:
    """The record without what is not shown, so that a step of a thousand long answers fits in memory."""
    return {**record, "prompt": None, "response": shorten(record["response"])}


def _bundle(records: Sequence[Record]) -> BundleSample:
    children: Mapping[str, list[Record]] = defaultdict(list)
    for record in records:
        if record["parent"] is not None:
            children[record["parent"]].append(record)
    roots = [record for record in records if record["parent"] is None]
    clean = [record for record in roots if record["judged"]]
    hints = [record for record in roots if not record["judged"]]
    first = records[0]
    return BundleSample(
        step=first["step"],
        problem_id=first["problem_id"],
        question=first["question"],
        gold=first["gold"],
        clean=_answer(clean, prefer=True),
        hints=tuple(HintSample(hint, _answer(children[hint["id"]], prefer=False)) for hint in hints),
    )


def _answer(records: Sequence[Record], prefer: bool) -> Answer | None:
    """One answer of a group: the first whose verdict is `prefer`, else the first."""
    if not records:
        return None
    shown = next((record for record in records if record["correct"] is prefer), records[0])
    judged = [record for record in records if record["judged"]]
    return Answer(shown, sum(record["correct"] for record in judged), len(judged))
