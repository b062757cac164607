"""A benchmark's own way of finding the answer in a response, in front of the run's judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from megatron_seirenes.records import Verdict
from megatron_seirenes.verifier.protocol import Judge


class ExtractingJudge:
    r"""Extracts first and hands the judge `\boxed{answer}` alone; without an answer there is nothing to judge."""

    def __init__(self, judge: Judge, extract: Callable[[str], str | None]):
        self._judge = judge
        self._extract = extract
        self._unanswered: list[tuple[str, Verdict]] = []

    def submit(self, key: str, gold: str, response: str) -> None:
        answer = self._extract(response)
        if answer is None:
            self._unanswered.append((key, Verdict(False, None, "no_answer", 0.0)))
        else:
            self._judge.submit(key, gold, f"\\boxed{{{answer}}}")

    def ready(self) -> Sequence[tuple[str, Verdict]]:
        return [*self._take(), *self._judge.ready()]

    def drain(self) -> Sequence[tuple[str, Verdict]]:
        return [*self._take(), *self._judge.drain()]

    def close(self) -> None:
        """The judge belongs to whoever opened it."""

    def _take(self) -> list[tuple[str, Verdict]]:
        taken, self._unanswered = self._unanswered, []
        return taken
