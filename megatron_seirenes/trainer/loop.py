"""The loop (paper, Algorithm 1): collect bundles, credit them, queue groups, give every stream its turn, move weights.

The loop is a cursor over phases: collection, then one turn for each stream in the game's order, then the sync. Whatever
has memory is in `state_dict`, the half-filled metrics row included, so a snapshot taken between two phases goes on
exactly where it stood. A stop that arrives during collection drops the partial step: sampler and streams return to
their state before it. One that arrives during an evaluation is obeyed there, and the evaluation goes on later.

The loop knows no game by name and reads the clock for metrics only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from megatron_seirenes.config.loading import dump_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import SeirenesError, StoppedBySignal
from megatron_seirenes.games.game import Game, Stream
from megatron_seirenes.objectives.token_loss import TokenLoss
from megatron_seirenes.observe.collection import collection_metrics
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.records import Birth, Bundle
from megatron_seirenes.rollouts.scheduler import CollectionStopped, RolloutScheduler
from megatron_seirenes.streams.streams import Streams
from megatron_seirenes.trainer.budget import Spent, reason_to_end
from megatron_seirenes.trainer.collect import Scores, credit_bundles, mismatch_metrics, rollouts_of, score
from megatron_seirenes.trainer.disk import Disk
from megatron_seirenes.trainer.health import Health
from megatron_seirenes.trainer.numbers import NonfiniteUpdates, keep_for_inspection, mismatch_fault
from megatron_seirenes.trainer.rounds import ask
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.snapshot import Cursor, remove_old, write_snapshot
from megatron_seirenes.trainer.update import Row, empty_update_metrics, training_sequences, update_metrics
from megatron_seirenes.trainer.watch import Watch

if TYPE_CHECKING:
    import torch

    from megatron_seirenes.actor.actor import Actor
    from megatron_seirenes.actor.sequences import TrainingSequence, UpdateReport
    from megatron_seirenes.rollouts.engine import Engine


class StopRequest(Protocol):
    """Whether the run has been told to stop; read at safe points only."""

    @property
    def requested(self) -> bool: ...


Evaluate = Callable[[int], Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loop joins. `policy_tensors` streams the actor's weights under their Hugging Face names."""

    game: Game
    sampler: ProblemSampler
    streams: Streams
    scheduler: RolloutScheduler
    actor: Actor
    engine: Engine
    losses: Mapping[str, TokenLoss]
    policy_tensors: Callable[[], Iterable[tuple[str, torch.Tensor]]]
    evaluate: Evaluate | None = None


class Trainer:
    """Runs a game to the end of its budget. `fingerprint` is what must not change between a snapshot and its heir."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        directory: RunDirectory,
        watch: Watch,
        stop: StopRequest,
        fingerprint: Mapping[str, dict[str, str]],
        health: Health,
    ):
        self.config = config
        self.parts = parts
        self.directory = directory
        self.watch = watch
        self.stop = stop
        self.health = health
        self.fingerprint = dict(fingerprint)
        self.clock = watch.clock
        self.cursor = Cursor(step=0)
        self.spent = Spent()
        self.row: Row = {}
        self.nonfinite = NonfiniteUpdates(config.faults.nonfinite_in_a_row)
        self.disk = Disk(config.snapshot.on_failure, lambda text: self.watch.event(text))
        self._snapshot_seconds = 0.0
        self._synced = False

    # -- the run

    def run(self) -> str:
        """Trains until the budget is used or every question is retired; returns the reason. Raises StoppedBySignal."""
        self._sync()
        while (reason := self._reason_to_end()) is None:
            self._step()
        self._save()
        return reason

    def _reason_to_end(self) -> str | None:
        if self.cursor.next_stream is not None:
            return None
        if self.parts.sampler.exhausted:
            return "every question is retired"
        return reason_to_end(self.config.run, self.cursor.step, self.spent)

    def _step(self) -> None:
        if self.cursor.next_stream is None:
            self._collect()
        for index in range(self.cursor.next_stream or 0, len(self.parts.game.streams)):
            self._stop_if_told()
            self._give_turn(self.parts.game.streams[index])
            self.cursor = Cursor(self.cursor.step, next_stream=index + 1)
            self._save_and_fail(self.nonfinite.reason_to_stop())
        self._stop_if_told()
        self._sync()
        self._close_step()

    # -- collection

    def _collect(self) -> None:
        self._stop_if_told()
        parts, step = self.parts, self.cursor.step + 1
        before = (parts.sampler.state_dict(), parts.streams.state_dict())
        suspended = parts.streams.begin_step()
        self.row = {"step": step} | empty_update_metrics(parts.game.streams) | dict.fromkeys(_TIMES, 0.0)
        if parts.game.memory is not None:
            parts.game.memory.begin_step(step)
        self.watch.step_begins(step)
        self.health.beat("rollout", step)
        try:
            with self._timed("rollout"):
                asked = ask(parts, self._birth(step), suspended)
        except CollectionStopped:
            self._drop_step(before)
            self._save_and_stop()
        bundles = asked.bundles
        self.row["rollout/rounds"] = asked.rounds
        self.row["rollout/inexact"] = int(asked.regenerations > 0)
        self.row["time/judge_wait"] = asked.judge_wait_seconds
        rollouts = rollouts_of(bundles)
        parts.engine.sleep()
        with self._timed("train", "scoring"):
            scores = score(parts.actor, rollouts, reference_needed=self.config.objective.reference_kl > 0)
        self.row |= mismatch_metrics(rollouts, scores)
        if fault := mismatch_fault(self.row, self.config.faults.mismatch_limit):
            self._drop_step(before)
            self._save_and_fail(fault)
        self._credit(step, bundles, scores)
        self.cursor = Cursor(self.cursor.step, next_stream=0)

    def _birth(self, step: int) -> Birth:
        return Birth(step, self.parts.streams.policy_version, self.parts.streams.update_counts())

    def _drop_step(self, before: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Sampler and streams return to where they were before the step."""
        self.parts.sampler.load_state_dict(before[0])
        self.parts.streams.load_state_dict(before[1])

    def _credit(self, step: int, bundles: list[Bundle], scores: Scores) -> None:
        parts = self.parts
        birth = self._birth(step)
        from_engine = self.config.rollout.behaviour_logprobs == "engine"
        groups = credit_bundles(parts.game, bundles, birth, scores, from_engine)
        for stream in parts.game.streams:
            parts.streams.offer(stream.name, groups[stream.name])
        for bundle in bundles:
            parts.sampler.observe(bundle.problem.id, parts.game.mastered(bundle))
        if parts.game.memory is not None:
            notes = [parts.game.memory.note(bundle) for bundle in bundles]
            parts.game.memory.remember([note for note in notes if note is not None])
        self.row |= collection_metrics(parts.game, bundles)
        self.spent.generated_tokens += sum(len(rollout.response_ids) for rollout in rollouts_of(bundles))
        self.watch.bundles_collected(step, bundles, groups)

    # -- updates

    def _give_turn(self, stream: Stream) -> None:
        parts = self.parts
        for _ in range(stream.max_flushes):
            groups = parts.streams.take(stream.name)
            if groups is None:
                return
            sequences = training_sequences(parts.game, stream, groups, self.config.objective)
            with self._timed("train", f"training {stream.name}"):
                report = parts.actor.update(sequences, parts.losses[stream.name])
            if report.skipped:
                self._note_skipped(stream, report, sequences)
                continue
            self.nonfinite.taken()
            parts.streams.record_update(stream.name)
            self.spent.updates += 1
            self._fold(stream, update_metrics(stream, groups, report))
            self.row["tokens/trained"] = (self.row.get("tokens/trained") or 0) + report.tokens

    def _note_skipped(self, stream: Stream, report: UpdateReport, sequences: Sequence[TrainingSequence]) -> None:
        step, key = self.cursor.step + 1, f"streams/{stream.name}/skipped_nonfinite"
        self.row[key] = (self.row[key] or 0) + 1
        self.watch.event(self.nonfinite.skipped(stream.name, step, report))
        keep_for_inspection(self.directory.logs, step, stream.name, 0, report, sequences)

    def _fold(self, stream: Stream, metrics: Row) -> None:
        """Puts an update's metrics into the row; several flushes of a stream in one step are averaged."""
        count = int(self.parts.streams.counters()[stream.name]["updates"] or 1)
        for key, value in metrics.items():
            before = self.row.get(key)
            self.row[key] = value if before is None or value is None else before + (value - before) / count

    def _sync(self) -> None:
        """Moves the actor's weights into the engine, unless it holds this version already."""
        engine, version = self.parts.engine, self.parts.streams.policy_version
        with self._timed("sync"):
            engine.wake()
            if not self._synced or engine.policy_version != version:
                engine.load_weights(self.parts.policy_tensors(), version)
            self._synced = True

    # -- the end of a step

    def _close_step(self) -> None:
        parts, step = self.parts, self.cursor.step + 1
        every = self.config.evaluation.every
        if parts.evaluate is not None and every and step % every == 0:
            try:
                with self._timed("evaluation"):
                    self.row |= parts.evaluate(step)
            except CollectionStopped:
                self._save_and_stop()
        self.cursor = Cursor(step)
        self.row |= self._step_totals()
        self.spent.seconds += float(self.row["time/step"] or 0.0)
        self.watch.step_done(self.row)
        self.row = {}
        if self.config.snapshot.every and step % self.config.snapshot.every == 0:
            self._save(must=False)

    def _step_totals(self) -> Row:
        parts, row = self.parts, self.row
        totals: Row = {"policy_version": parts.streams.policy_version}
        for name, counters in parts.streams.counters().items():
            totals |= {f"streams/{name}/{key}": value for key, value in counters.items()}
        totals["mastery/retired"] = len(parts.sampler.retired)
        totals["mastery/live_fraction"] = parts.sampler.live_fraction
        totals["tokens/trained"] = row.get("tokens/trained") or 0
        totals["time/snapshot"] = self._snapshot_seconds
        seconds = {name: float(row[f"time/{name}"] or 0.0) for name in _PARTS_OF_A_STEP}
        totals["time/step"] = sum(seconds.values()) + self._snapshot_seconds
        totals["throughput/generated"] = _rate(row["tokens/generated"], seconds["rollout"])
        totals["throughput/trained"] = _rate(totals["tokens/trained"], seconds["train"])
        self._snapshot_seconds = 0.0
        return totals

    # -- stopping and saving

    def _stop_if_told(self) -> None:
        if self.stop.requested:
            self._save_and_stop()

    def _save_and_stop(self) -> None:
        path = self._save()
        raise StoppedBySignal(
            f"stopped by a signal; everything is saved in {path}; the same command goes on from there"
        )

    def _save_and_fail(self, reason: str | None) -> None:
        if reason is not None:
            raise SeirenesError(f"{reason}. Everything before is saved in {self._save()}")

    def _save(self, must: bool = True) -> Path:
        """Saves a snapshot, or makes do without when the disk refuses and it need not be. Raises DiskRefused."""
        path = self.directory.snapshots / self.cursor.name
        with self.disk.guard(f"the snapshot {path}", "the one before is whole", always_stop=must):
            self._write_snapshot()
        return path

    def _write_snapshot(self) -> None:
        if (self.directory.snapshots / self.cursor.name / "COMPLETE").exists():
            return
        started = self.clock()
        with self._phase("snapshot"):
            write_snapshot(
                self.directory.snapshots,
                self.cursor,
                self.state_dict(),
                dump_config(self.config),
                self._save_parts,
            )
        with self.disk.shrug("the removal of old snapshots"):
            remove_old(self.directory.snapshots, self.config.snapshot.keep, self.config.snapshot.keep_every)
        self._snapshot_seconds += self.clock() - started

    def _save_parts(self, actor_folder: Path) -> None:
        """Writes what a snapshot holds beside the loop's state; what it relies on is on the disk first."""
        self.watch.settle()
        self.parts.actor.save(actor_folder)

    def state_dict(self) -> dict[str, Any]:
        """Everything that remembers, as JSON-able data; the actor saves its own beside it."""
        return {
            "cursor": [self.cursor.step, self.cursor.next_stream],
            "fingerprint": self.fingerprint,
            "spent": self.spent.state_dict(),
            "row": self.row,
            "nonfinite_in_a_row": self.nonfinite.in_a_row,
            "sampler": self.parts.sampler.state_dict(),
            "streams": self.parts.streams.state_dict(),
            "memory": None if self.parts.game.memory is None else self.parts.game.memory.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes back to where `state_dict` was taken."""
        self.cursor = Cursor(*state["cursor"])
        self.spent = Spent.from_state(state["spent"])
        self.row = dict(state["row"])
        self.nonfinite.in_a_row = state["nonfinite_in_a_row"]
        self.parts.sampler.load_state_dict(state["sampler"])
        self.parts.streams.load_state_dict(state["streams"])
        if self.parts.game.memory is not None and state.get("memory") is not None:
            self.parts.game.memory.load_state_dict(state["memory"])

    @contextmanager
    def _timed(self, name: str, phase: str | None = None) -> Iterator[None]:
        """A phase whose time counts as `time/{name}`."""
        started = self.clock()
        with self._phase(phase or name):
            yield
        key = f"time/{name}"
        self.row[key] = (self.row.get(key) or 0.0) + self.clock() - started


    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.health.beat(name)
        with self.watch.span(name):
            yield


_PARTS_OF_A_STEP = ("rollout", "train", "sync", "evaluation")
_TIMES = ("time/judge_wait", *(f"time/{name}" for name in _PARTS_OF_A_STEP))


def _rate(tokens: float | int | None, seconds: float) -> float | None:
    return float(tokens) / seconds if tokens and seconds > 0 else None
