"""The judge that the rest of the house sees: responses go in, verdicts come out.

Extraction and the certain, cheap decisions happen where they are submitted, in microseconds; the rest goes to the pool
of workers. Identical (gold, answer) pairs are judged once. A verdict depends on gold and response alone: never on
order, load, neighbours, or whether a worker was lost on the way.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from megatron_seirenes.config.schema import VerifierSection
from megatron_seirenes.records import Verdict, VerdictReason
from megatron_seirenes.verifier.exact import decide_at_once
from megatron_seirenes.verifier.extraction import POLICIES, choice_letter
from megatron_seirenes.verifier.options import Options
from megatron_seirenes.verifier.pool import WorkerPool

QUEUE = 4_096
REMEMBERED = 65_536

_Pair = tuple[str, str]


class PooledJudge:
    """Judges in the background (`verifier.protocol.Judge`); a context manager that ends its workers."""

    def __init__(self, settings: VerifierSection):
        self._extract = POLICIES[settings.extraction]
        self._by_letter = settings.extraction == "choice"
        self._pool = WorkerPool(
            settings.workers, settings.cpu_seconds, settings.memory_mb, QUEUE, settings.equality.model_dump()
        )
        self._options = Options(**settings.equality.model_dump())
        self._known: OrderedDict[_Pair, VerdictReason] = OrderedDict()
        self._asked: dict[int, _Pair] = {}
        self._waiting: dict[_Pair, list[str]] = {}
        self._pending: set[str] = set()
        self._done: deque[tuple[str, Verdict]] = deque()
        self._tickets = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, key: str, gold: str, response: str) -> None:
        """Queues one response; blocks only when `QUEUE` pairs wait in the pool. `key` is unique among pending ones."""
        if key in self._pending:
            raise ValueError(f"a response with key {key!r} is already being judged")
        answer = self._extract(response)
        if answer is None:
            self._done.append((key, Verdict(False, None, "no_answer", 0.0)))
            return
        pair = (gold, answer)
        reason = self._known.get(pair) or self._at_once(gold, answer)
        if reason is not None:
            self._done.append((key, _verdict(answer, reason, 0.0)))
            return
        self._pending.add(key)
        self._ask(key, pair)

    def ready(self) -> Sequence[tuple[str, Verdict]]:
        """The verdicts that arrived since the last call, without waiting."""
        self._collect()
        arrived = tuple(self._done)
        self._done.clear()
        return arrived

    def drain(self) -> Sequence[tuple[str, Verdict]]:
        """Waits for every pending verdict and returns those not yet handed out."""
        while self._pending:
            self._pool.wait()
            self._collect()
        return self.ready()

    def close(self) -> None:
        """Kills the workers; pending responses are forgotten."""
        self._pool.close()

    def worker_pids(self) -> list[int]:
        """The worker processes that live now, for people and tests."""
        return self._pool.worker_pids()

    def _at_once(self, gold: str, answer: str) -> VerdictReason | None:
        if self._by_letter:
            return "match" if choice_letter(gold) == answer else "mismatch"
        return decide_at_once(gold, answer, self._options)

    def _ask(self, key: str, pair: _Pair) -> None:
        keys = self._waiting.setdefault(pair, [])
        keys.append(key)
        if len(keys) > 1:
            return
        self._tickets += 1
        self._asked[self._tickets] = pair
        self._pool.submit(self._tickets, *pair)

    def _collect(self) -> None:
        for judged in self._pool.take():
            pair = self._asked.pop(judged.ticket)
            self._known[pair] = judged.reason
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            seconds = judged.seconds
            for key in self._waiting.pop(pair):
                self._pending.discard(key)
                self._done.append((key, _verdict(pair[1], judged.reason, seconds)))
                seconds = 0.0


def judge_pairs(pairs: Iterable[tuple[str, str]], settings: VerifierSection) -> Iterator[Verdict]:
    """Judges a stream of (gold, response) and yields the verdicts in its order, reading ahead at most `QUEUE` pairs."""
    arrived: dict[str, Verdict] = {}
    order: deque[str] = deque()
    with PooledJudge(settings) as judge:
        for number, (gold, response) in enumerate(pairs):
            judge.submit(str(number), gold, response)
            order.append(str(number))
            arrived.update(judge.ready() if len(order) < QUEUE else judge.drain())
            while order and order[0] in arrived:
                yield arrived.pop(order.popleft())
        arrived.update(judge.drain())
        while order:
            yield arrived.pop(order.popleft())


def judge_one(gold: str, response: str, settings: VerifierSection) -> Verdict:
    """Judges a single response."""
    return next(judge_pairs([(gold, response)], settings))


def _verdict(answer: str, reason: VerdictReason, seconds: float) -> Verdict:
    return Verdict(reason == "match", answer, reason, seconds)
