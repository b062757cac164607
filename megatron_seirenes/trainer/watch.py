"""Everything that looks on while a run trains: console, metrics file, rollout records, timeline, TensorBoard.

One object, so that the loop says what happened once. Nothing here decides anything; a run that nobody watches makes
the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from megatron_seirenes.config.schema import Config
from megatron_seirenes.games.game import Game
from megatron_seirenes.observe.console import Console, make_console
from megatron_seirenes.observe.forecast import Spent as ForecastSpent
from megatron_seirenes.observe.record_writer import RecordWriter
from megatron_seirenes.observe.records import Record, rollout_records
from megatron_seirenes.observe.tensorboard import RowSink, TensorBoardSink, WandbSink
from megatron_seirenes.observe.timeline import Span, Timeline, TimelineFile, steady_clock
from megatron_seirenes.observe.writer import MetricsWriter
from megatron_seirenes.records import Bundle, Group
from megatron_seirenes.rollouts.progress import JudgingSpan, Progress, RolloutSpan
from megatron_seirenes.trainer.budget import Spent
from megatron_seirenes.trainer.bystander import Bystander, GatheredRecords
from megatron_seirenes.trainer.disk import Disk
from megatron_seirenes.trainer.ranks import Ranks, several
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.update import Row

if TYPE_CHECKING:
    from megatron_seirenes.actor.forward import MicroBatchSpan

Decode = Callable[[Sequence[int]], str]


def watch_of(
    ranks: Ranks, config: Config, directory: RunDirectory, game: Game, decode_prompt: Decode
) -> Watch | Bystander:
    """Who looks on at this rank."""
    if ranks.rank:
        return Bystander(config, directory.path, ranks, decode_prompt)
    return Watch(config, directory, game, decode_prompt, ranks if several(ranks) else None)


class Watch:
    """Enter it once a run, on rank 0; `go_on_after` first when the run resumes.

    `ranks` are given when there are several: the others bring the records of their rollouts.
    """

    def __init__(
        self, config: Config, directory: RunDirectory, game: Game, decode_prompt: Decode, ranks: Ranks | None = None
    ):
        self._config = config
        self._directory = directory
        self._game = game
        self._decode = decode_prompt
        self._metrics = MetricsWriter(directory.metrics)
        self.clock = steady_clock()
        self._timeline = Timeline(self.clock)
        self._timeline_file = TimelineFile(directory.timeline) if config.observe.timeline else None
        self._records = GatheredRecords(directory.path, ranks) if ranks else RecordWriter(directory.path)
        self._rollout_spans: list[Span] = []
        self._judging_spans: list[Span] = []
        self._sinks: list[RowSink] = []
        self._console: Console | None = None
        self._before = Spent()
        self._disk = Disk(config.snapshot.on_failure, lambda text: self.event(text))

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flush_timeline()
        with self._disk.shrug("the last rows of metrics"):
            self._metrics.write_refused()
        with self._disk.shrug("the last rollout records"):
            self._records.close()
        self._metrics.close()
        for sink in self._sinks:
            with self._disk.shrug("TensorBoard"):
                sink.close()
        if self._console is not None:
            self._console.close()

    def go_on_after(self, step: int, spent: Spent) -> None:
        """The run goes on after `step`: later rows are dropped, they will be lived again."""
        self._metrics.truncate_after(step)
        self._before = spent

    def begin(self) -> None:
        """Opens the console and the sinks; what was spent before and the last step are known by now."""
        config, before = self._config, self._before
        spent = ForecastSpent(before.seconds, before.generated_tokens, before.updates)
        steps = config.run.collection_steps
        self._console = make_console(config.observe.console, self._game.streams, steps, config.run.budget, spent)
        first_step = (self._metrics.last_step or 0) + 1
        if config.observe.tensorboard:
            self._sinks.append(TensorBoardSink(self._directory.tensorboard, first_step))
        if config.observe.wandb:
            self._sinks.append(WandbSink(config.run.name, config.model_dump(), self._directory.path))

    # -- what the loop and the scheduler report

    def event(self, text: str) -> None:
        if self._console is not None:
            self._console.event(text)

    def step_begins(self, step: int) -> None:
        if self._console is not None:
            self._console.begin_step(step)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A phase of the run: shown on the console, recorded on the timeline."""
        if self._console is not None:
            self._console.phase(name)
        with self._timeline.span(name, "phase", "trainer"):
            yield

    def rollout_span(self, span: RolloutSpan) -> None:
        if self._timeline_file is None or span.start_seconds is None or span.end_seconds is None:
            return
        args = {
            "stage": span.stage,
            "problem": span.problem_id,
            "tokens": span.tokens,
            "submit_step": span.submit_step,
            "end_step": span.end_step,
        }
        self._rollout_spans.append(Span(f"{span.stage} {span.request_id}", span.start_seconds, span.end_seconds, args))

    def judging_span(self, span: JudgingSpan) -> None:
        if self._timeline_file is not None:
            args = {"stage": span.stage, "problem": span.problem_id}
            self._judging_spans.append(Span(span.request_id, span.start_seconds, span.end_seconds, args))

    def micro_batch_span(self, span: MicroBatchSpan) -> None:
        if self._timeline_file is not None:
            name = "train" if span.training else "score"
            args = {"tokens": span.tokens, "sequences": span.sequences}
            self._timeline.add(name, "micro-batch", span.start_seconds, span.end_seconds, "micro-batches", args)

    def progress(self, progress: Progress) -> None:
        if self._console is not None:
            self._console.progress(progress.finished, progress.submitted, progress.tokens)

    def bundles_collected(
        self,
        step: int,
        order: Sequence[str],
        bundles: Sequence[Bundle],
        credited: Sequence[Mapping[str, Sequence[Group]]],
    ) -> None:
        """Writes the step's rollout records, those of all replicas, and puts this one's rollouts on the timeline.

        `order` has the ids of all replicas' questions, in the order of the records.
        """
        for category, spans in (("rollout", self._rollout_spans), ("judging", self._judging_spans)):
            self._timeline.add_overlapping(category, category, spans)
            spans.clear()
        if not self._config.observe.rollouts:
            return
        records = [rollout_records(*pair, self._decode) for pair in zip(bundles, credited, strict=True)]
        with self._disk.guard("rollout records", "those of a step are lost"):
            self._write_records(step, records, order)
        if self._console is not None and records:
            self._console.bundle(records[-1])

    def _write_records(self, step: int, records: Sequence[Sequence[Record]], order: Sequence[str]) -> None:
        if isinstance(self._records, GatheredRecords):
            self._records.write(step, records, order)
        else:
            self._records.write(step, records)

    def settle(self) -> None:
        """Returns when everything reported so far is on the disk; call it before a snapshot that relies on it.

        Raises OSError when the disk refuses.
        """
        self._records.wait()
        self._metrics.write_refused()

    def step_done(self, row: Row) -> None:
        dropped: tuple[str, ...] = ()
        with self._disk.guard(f"the metrics of step {row['step']}", "they are written as soon as it takes them"):
            dropped = self._metrics.append(row)
        if self._console is not None:
            self._console.end_step(row)
        if dropped:
            self.event(f"step {row['step']}: not finite, written as null: {', '.join(dropped)}")
        for sink in self._sinks:
            with self._disk.shrug("TensorBoard"):
                sink.write(row)
        self._flush_timeline()

    def finished(self, reason: str) -> None:
        self.event(f"done: {reason}. Run directory: {self._directory.path}; trained policy: {self._directory.policy}")

    def _flush_timeline(self) -> None:
        if self._timeline_file is not None:
            with self._disk.shrug("the timeline"):
                self._timeline_file.append(self._timeline.drain())
