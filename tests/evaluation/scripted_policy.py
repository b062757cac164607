"""A policy without a model: its answers follow from the seeds of requests, and it remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace

from megatron_seirenes.records import Problem, Request, Verdict
from megatron_seirenes.rollouts.engine import Completion

Answer = Callable[[Request], str]


def draws_right(rate: float) -> Answer:
    """Right (`\\boxed{1}`) in `rate` of the answers, else `\\boxed{0}`, drawn from the request's own seed."""
    return lambda request: f"\\boxed{{{int(Random(request.seed).random() < rate)}}}"


class SeededEngine:
    """Ends `slots` requests a step, first come first served; token ids are the characters of the text."""

    def __init__(self, answer: Answer, slots: int = 4, stop_after: int | None = None):
        self.policy_version = 0
        self.answer = answer
        self.slots = slots
        self.stop_after = stop_after
        self.waiting: list[Request] = []
        self.asked: list[Request] = []

    def submit(self, request: Request) -> None:
        self.asked.append(request)
        self.waiting.append(request)

    def step(self) -> Sequence[Completion]:
        if self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 0:
                raise KeyboardInterrupt
        ended, self.waiting = self.waiting[: self.slots], self.waiting[self.slots :]
        return [self._complete(request) for request in ended]

    def _complete(self, request: Request) -> Completion:
        ids = tuple(map(ord, self.answer(request)))
        return Completion(request.id, ids, (-0.5,) * len(ids), "stop")

    def has_unfinished(self) -> bool:
        return bool(self.waiting)

    def abort(self, request_ids: Iterable[str]) -> None:
        gone = set(request_ids)
        self.waiting = [request for request in self.waiting if request.id not in gone]


class BoxJudge:
    """Right is what is in the box and equals the gold, letter for letter."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.done: list[tuple[str, Verdict]] = []

    def submit(self, key: str, gold: str, response: str) -> None:
        self.seen.append((key, gold, response))
        box = response.rpartition("\\boxed{")[2].rstrip("}") if "\\boxed{" in response else None
        reason = "no_answer" if box is None else "match" if box == gold else "mismatch"
        self.done.append((key, Verdict(box == gold, box, reason, 0.0)))

    def ready(self) -> Sequence[tuple[str, Verdict]]:
        done, self.done = self.done, []
        return done

    drain = ready

    def close(self) -> None:
        pass


@dataclass
class PlainRole:
    """The question and, after a bar, the hint, a token a character."""

    prompt: str = "plain"
    refuse: str | None = None

    def prompt_ids(self, problem: Problem, context: Mapping[str, str]) -> tuple[int, ...]:
        return tuple(map(ord, "|".join([problem.question, *context.values()])))

    def admit(self, text: str, problem: Problem) -> str | None:
        return self.refuse


CHAT = SimpleNamespace(decode=lambda ids: "".join(map(chr, ids)))


def prompt_of(request: Request) -> str:
    return "".join(map(chr, request.prompt_ids))
