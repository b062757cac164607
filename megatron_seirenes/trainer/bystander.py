"""What looks on at a rank other than the first: it shows and writes nothing, and hands its records to rank 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from megatron_seirenes.config.schema import Config
from megatron_seirenes.observe.bundle_index import encode_bundles, write_bundles
from megatron_seirenes.observe.record_writer import THREADS
from megatron_seirenes.observe.records import Record, rollout_records
from megatron_seirenes.observe.timeline import steady_clock
from megatron_seirenes.records import Bundle, Group
from megatron_seirenes.rollouts.progress import JudgingSpan, Progress, RolloutSpan
from megatron_seirenes.trainer.budget import Spent
from megatron_seirenes.trainer.ranks import Ranks, leaders_to_first
from megatron_seirenes.trainer.update import Row

if TYPE_CHECKING:
    from megatron_seirenes.actor.forward import MicroBatchSpan


class GatheredRecords:
    """Writes the records of all replicas: each leader encodes its own, rank 0 writes them in the order of questions.

    `write` is collective; the file is on the disk when it returns on rank 0.
    """

    def __init__(self, run_dir: Path, ranks: Ranks):
        self._run_dir = run_dir
        self._ranks = ranks

    def write(self, step: int, bundles: Sequence[Sequence[Record]], order: Sequence[str]) -> None:
        with ThreadPoolExecutor(THREADS, thread_name_prefix="records") as pool:
            encoded = encode_bundles(bundles, pool)
        of_replicas = leaders_to_first(self._ranks, encoded)
        if of_replicas is not None:
            place = {problem_id: number for number, problem_id in enumerate(order)}
            filled = [(bundle, bundle.facts) for own in of_replicas for bundle in own if bundle.facts is not None]
            filled.sort(key=lambda pair: place[pair[1].problem_id])
            write_bundles(self._run_dir, step, [bundle for bundle, _ in filled])

    def wait(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Holds nothing open."""


class Bystander:
    """Takes what `Watch` takes, on the ranks that do not report."""

    def __init__(self, config: Config, run_dir: Path, ranks: Ranks, decode_prompt: Callable[[Sequence[int]], str]):
        self._config = config
        self._decode = decode_prompt
        self._records = GatheredRecords(run_dir, ranks)
        self.clock = steady_clock()

    def __enter__(self) -> Bystander:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def go_on_after(self, step: int, spent: Spent) -> None: ...

    def begin(self) -> None: ...

    def event(self, text: str) -> None: ...

    def step_begins(self, step: int) -> None: ...

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield

    def rollout_span(self, span: RolloutSpan) -> None: ...

    def judging_span(self, span: JudgingSpan) -> None: ...

    def micro_batch_span(self, span: MicroBatchSpan) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def bundles_collected(
        self,
        step: int,
        order: Sequence[str],
        bundles: Sequence[Bundle],
        credited: Sequence[Mapping[str, Sequence[Group]]],
    ) -> None:
        """Collective, as on rank 0."""
        if self._config.observe.rollouts:
            records = [rollout_records(*pair, self._decode) for pair in zip(bundles, credited, strict=True)]
            self._records.write(step, records, order)

    def settle(self) -> None: ...

    def step_done(self, row: Row) -> None: ...

    def finished(self, reason: str) -> None: ...
