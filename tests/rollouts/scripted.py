"""A scripted engine, judge and role: every request has a length and a text that the test writes down."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from megatron_seirenes.games.game import Game, Stage, Stream
from megatron_seirenes.records import Birth, Bundle, Group, Problem, Request, Verdict
from megatron_seirenes.rollouts.engine import Completion


class ScriptedEngine:
    """Serves first come, first served with `slots` places; a freed place is refilled in the next step.

    `length(request)` tokens are drawn one a step. Each token is the request's text id, so `ScriptedText` can decode it.
    """

    def __init__(self, length: Callable[[Request], int], slots: int = 10**9):
        self.policy_version = 7
        self.length = length
        self.slots = slots
        self.steps = 0
        self.waiting: deque[Request] = deque()
        self.running: dict[str, list] = {}
        self.submitted: list[Request] = []
        self.log: list[tuple[int, str]] = []

    def submit(self, request: Request) -> None:
        self.submitted.append(request)
        self.log.append((self.steps, request.id))
        self.waiting.append(request)

    def step(self) -> Sequence[Completion]:
        while self.waiting and len(self.running) < self.slots:
            request = self.waiting.popleft()
            self.running[request.id] = [request, self.length(request)]
        self.steps += 1
        ended = []
        for request, left in list(self.running.values()):
            self.running[request.id][1] = left - 1
            if left == 1:
                del self.running[request.id]
                ended.append(self._complete(request))
        return ended

    def _complete(self, request: Request) -> Completion:
        drawn = self.length(request)
        reason = "length" if drawn >= request.sampling.max_tokens else "stop"
        return Completion(request.id, (request.seed % 1000,) * drawn, (-0.5,) * drawn, reason)

    def has_unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def drawn_tokens(self) -> int:
        return sum(self.length(request) - left for request, left in self.running.values())

    def abort(self, request_ids: Iterable[str]) -> None:
        gone = set(request_ids)
        self.waiting = deque(request for request in self.waiting if request.id not in gone)
        self.running = {key: value for key, value in self.running.items() if key not in gone}


class ScriptedJudge:
    """Calls every response right. `delay` polls pass before a verdict is ready."""

    def __init__(self, delay: int = 0):
        self.delay = delay
        self.polls = 0
        self.pending: list[tuple[int, str]] = []
        self.seen: list[tuple[str, str, str]] = []

    def submit(self, key: str, gold: str, response: str) -> None:
        self.seen.append((key, gold, response))
        self.pending.append((self.polls + self.delay, key))

    def ready(self) -> Sequence[tuple[str, Verdict]]:
        self.polls += 1
        due = [key for when, key in self.pending if when < self.polls]
        self.pending = [(when, key) for when, key in self.pending if when >= self.polls]
        return [(key, Verdict(True, "1", "match", 0.0)) for key in due]

    def drain(self) -> Sequence[tuple[str, Verdict]]:
        due, self.pending = self.pending, []
        return [(key, Verdict(True, "1", "match", 0.0)) for _, key in due]

    def close(self) -> None:
        pass


class ScriptedRole:
    """A prompt of the question's id and, after it, one token a character of the hint."""

    def __init__(self, refuse: Callable[[str], str | None] = lambda text: None):
        self.refuse = refuse

    def prompt_ids(self, problem: Problem, context: Mapping[str, str]) -> tuple[int, ...]:
        return tuple(map(ord, problem.question + context.get("hint", "")))

    def admit(self, text: str, problem: Problem) -> str | None:
        return self.refuse(text)


def no_credit(bundle: Bundle, birth: Birth) -> Mapping[str, Sequence[Group]]:
    return {}


def stream(name: str, trains_on: str, *needs: str) -> Stream:
    return Stream(name, trains_on, needs, "clipped", flush=1, capacity=4, max_lag=3, max_policy_lag=12)


def three_stages(clean: int = 2, hints: int = 2, answers: int = 2, **hinted) -> Game:
    """The shape of Seirenes: R1 and R2 at once, R3 under every hint."""
    return Game(
        name="three",
        stages=(
            Stage("R1", "reasoner", samples=clean, max_tokens=100),
            Stage("R2", "adversary", samples=hints, max_tokens=20, judged=False),
            Stage("R3", "reasoner", samples=answers, max_tokens=100, parent="R2", **hinted),
        ),
        streams=(
            stream("clean", "R1", "R1"),
            stream("adversary", "R2", "R1", "R2", "R3"),
            stream("robust", "R3", "R3"),
        ),
        credit=no_credit,
        mastered=lambda bundle: None,
        clean_stage="R1",
        hinted_stage="R3",
    )
