"""Which questions a collection step asks, and which are retired because they are mastered (paper, Appendix D).

Each epoch is a permutation of the whole pool, drawn from the seed and the epoch's number alone. Invariants:

* within an epoch every question that is not retired before its turn is asked exactly once, none twice;
* a batch never holds a question twice; one that crosses into the next epoch puts off the questions it already holds
  and they keep their place at the head of that epoch;
* a batch is full as long as the pool has enough live questions, and holds every live question otherwise;
* a retired question is not asked again, but for a share of the places (`mastery.revisit`, none by default) that go to
  retired questions: one that is no longer mastered is live again;
* the future depends on `state_dict` alone: saved and loaded between any two calls, the sampler goes on identically.

It refuses an empty pool, equal ids, and the state of another pool or seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from megatron_seirenes.config.schema import MasterySection
from megatron_seirenes.errors import DataError
from megatron_seirenes.records import Problem
from megatron_seirenes.seeds import stable_seed


class ProblemSampler:
    """Draws batches of `per_step` problems and keeps the mastered set."""

    def __init__(self, problems: Sequence[Problem], per_step: int, seed: int, mastery: MasterySection):
        if not problems:
            raise DataError("problems.train holds no problems")
        self._problems = {problem.id: problem for problem in problems}
        if len(self._problems) != len(problems):
            repeated = [id_ for id_, times in Counter(problem.id for problem in problems).items() if times > 1]
            raise DataError(f"problems.train: ids are not unique: {', '.join(repeated[:5])}")
        self._per_step = per_step
        self._seed = seed
        self._mastery = mastery
        self._epoch = -1
        self._queue: list[str] = []
        self._streaks: dict[str, int] = {}
        self._retired: dict[str, None] = {}
        self._batches = 0
        self._retired_shares = 0.0

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the whole pool, retired or not."""
        return frozenset(self._problems)

    @property
    def retired(self) -> tuple[str, ...]:
        """The ids of the retired problems, in the order of their retirement."""
        return tuple(self._retired)

    @property
    def live_fraction(self) -> float:
        """The share of the pool that is not retired."""
        return 1.0 - len(self._retired) / len(self._problems)

    @property
    def saved_fraction(self) -> float:
        """The share of all rollout work that retirement has saved so far, by the linear estimate of Appendix D.

        The mean over batches of the pool's retired share: an upper bound, for a batch takes as long as its longest.
        """
        return self._retired_shares / self._batches if self._batches else 0.0

    @property
    def exhausted(self) -> bool:
        """Whether every problem is retired, so that no batch can be drawn."""
        return len(self._retired) == len(self._problems)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next problem comes from or the last came from; -1 before the first batch."""
        return self._epoch

    def next_batch(self, without: Iterable[str] = ()) -> list[Problem]:
        """The next batch; shorter than `per_step` only when fewer questions are live, empty when all are retired.

        Questions of `without`, which this step has asked already, are put off like those that the batch holds; with
        any, the step is still the last one and no retired question is revisited.
        """
        batch: dict[str, None] = dict.fromkeys(without)
        asked = len(batch)
        live = len(self._problems) - len(self._retired) - sum(problem_id not in self._retired for problem_id in batch)
        revisited = [] if asked else self._begin_step()
        size = asked + min(self._per_step - len(revisited), live)
        while len(batch) < size:
            self._draw_into(batch, size)
            if len(batch) < size:
                self._start_epoch()
        return [self._problems[problem_id] for problem_id in (*list(batch)[asked:], *revisited)]

    def _begin_step(self) -> list[str]:
        """Counts a step; the retired questions that it asks again, none when all are retired (the run ends then)."""
        self._batches += 1
        self._retired_shares += 1.0 - self.live_fraction
        count = min(int(self._per_step * self._mastery.revisit), len(self._retired))
        if not count or self.exhausted:
            return []
        return Random(stable_seed("revisit", self._seed, self._batches)).sample(list(self._retired), count)

    def observe(self, problem_id: str, mastered: bool | None) -> None:
        """Counts one step's evidence: true lengthens the question's streak, false ends it, None leaves it.

        A streak of `mastery.streak` (K_m) retires the question; a retired one that was revisited and is not mastered is
        live again.
        """
        if problem_id not in self._problems:
            raise ValueError(f"problem {problem_id} is not in the pool")
        if not self._mastery.enabled or mastered is None:
            return
        if problem_id in self._retired:
            if self._mastery.revisit and not mastered:
                del self._retired[problem_id]
            return
        if not mastered:
            self._streaks.pop(problem_id, None)
            return
        self._streaks[problem_id] = self._streaks.get(problem_id, 0) + 1
        if self._streaks[problem_id] >= self._mastery.streak:
            del self._streaks[problem_id]
            self._retired[problem_id] = None

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, as JSON values."""
        return {
            "pool": self._pool_digest(),
            "seed": self._seed,
            "epoch": self._epoch,
            "queue": list(self._queue),
            "streaks": dict(self._streaks),
            "retired": list(self._retired),
            "batches": self._batches,
            "retired_shares": self._retired_shares,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state. Raises DataError when it was saved over another pool or seed."""
        if state["pool"] != self._pool_digest():
            raise DataError(
                "the snapshot's sampler was saved over other problems than the "
                f"{len(self._problems)} of problems.train; resume with the same problems, or start a new run"
            )
        if state["seed"] != self._seed:
            raise DataError(f"the snapshot's sampler has seed {state['seed']}, this run's {self._seed}; set run.seed")
        self._epoch = int(state["epoch"])
        self._queue = list(state["queue"])
        self._streaks = {problem_id: int(streak) for problem_id, streak in state["streaks"].items()}
        self._retired = dict.fromkeys(state["retired"])
        self._batches = int(state["batches"])
        self._retired_shares = float(state["retired_shares"])

    def _draw_into(self, batch: dict[str, None], size: int) -> None:
        """Moves live questions from the epoch's queue into the batch until it is full; those in it already stay."""
        put_off: list[str] = []
        taken = 0
        for problem_id in self._queue:
            if len(batch) == size:
                break
            taken += 1
            if problem_id in batch:
                put_off.append(problem_id)
            elif problem_id not in self._retired:
                batch[problem_id] = None
        self._queue = put_off + self._queue[taken:]

    def _start_epoch(self) -> None:
        """Begins the next epoch. Only called with the last one's queue empty: a batch crosses one boundary at most."""
        self._epoch += 1
        self._queue = list(self._problems)
        Random(stable_seed("sampler", self._seed, self._epoch)).shuffle(self._queue)

    def _pool_digest(self) -> int:
        return stable_seed("pool", *self._problems)
