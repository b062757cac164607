"""The loop (paper, Algorithm 1): collect bundles, credit them, queue groups, give every stream its turn, move weights.

The loop is a cursor over phases: collection, then one turn for each stream in the game's order, then the sync. Whatever
has memory is in `state_dict`, the half-filled metrics row included, so a snapshot taken between two phases goes on
exactly where it stood. A stop that arrives during collection drops the partial step: sampler and streams return to
their state before it. One that arrives during an evaluation is obeyed there, and the evaluation goes on later.

Every rank of a run runs this loop and decides the same: each replica asks its share of the questions and tells the
others what came of it (`Harvest`); sampler, mastery, streams and counters are the same everywhere, and their digests
are compared at every update and every step. Tokens stay with the replica that made them until an update trains on them.

The loop knows no game by name. It reads the clock for metrics only; where a time decides (a budget of hours), it is
rank 0's on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from megatron_seirenes.config.loading import dump_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import SeirenesError, StoppedBySignal
from megatron_seirenes.games.game import Stream
from megatron_seirenes.observe.collection import tally_metrics
from megatron_seirenes.records import Birth
from megatron_seirenes.rollouts.scheduler import CollectionStopped
from megatron_seirenes.trainer.agreement import check_agreement
from megatron_seirenes.trainer.budget import Spent, reason_to_end
from megatron_seirenes.trainer.bystander import Bystander
from megatron_seirenes.trainer.collect import (
    Credited,
    Harvest,
    credit_bundles,
    harvest_of,
    joined,
    measure_gaps,
    mismatch_metrics,
    rollouts_of,
    score,
)
from megatron_seirenes.trainer.disk import Disk
from megatron_seirenes.trainer.health import Health
from megatron_seirenes.trainer.numbers import NonfiniteUpdates, keep_for_inspection, mismatch_fault
from megatron_seirenes.trainer.parts import Parts, StopRequest
from megatron_seirenes.trainer.payloads import PayloadStore, rehomed
from megatron_seirenes.trainer.ranks import any_rank, from_first, of_leaders
from megatron_seirenes.trainer.rounds import Asked, ask
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.shared_snapshot import write_shared_snapshot
from megatron_seirenes.trainer.snapshot import Cursor, remove_old
from megatron_seirenes.trainer.totals import TIMES, step_totals
from megatron_seirenes.trainer.update import Row, empty_update_metrics, flush_parts, own_sequences, update_metrics
from megatron_seirenes.trainer.watch import Watch

if TYPE_CHECKING:

    from megatron_seirenes.actor.sequences import TrainingSequence, UpdateReport


PAYLOADS = "payloads"
"""The folder of a snapshot that holds the tokens of waiting groups, beside the actor's."""


class Trainer:
    """Runs a game to the end of its budget. `fingerprint` is what must not change between a snapshot and its heir."""

    def __init__(
        self,
        config: Config,
        parts: Parts,
        directory: RunDirectory,
        watch: Watch | Bystander,
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
        self.payloads = PayloadStore(with_behaviour=config.objective.correction != "none")
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
        self.health.beat(step=self.cursor.step + 1)
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
        self.row = {"step": step} | empty_update_metrics(parts.game.streams) | dict.fromkeys(TIMES, 0.0)
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
        credited, harvest = self._harvest(step, asked)
        self.row["rollout/rounds"] = asked.rounds
        self.row |= mismatch_metrics(harvest.gaps)
        if fault := mismatch_fault(self.row, self.config.faults.mismatch_limit):
            self._drop_step(before)
            self._save_and_fail(fault)
        self._learn_of(harvest, credited)
        self.watch.bundles_collected(step, asked.order, asked.bundles, credited)
        self.cursor = Cursor(self.cursor.step, next_stream=0)

    def _birth(self, step: int) -> Birth:
        return Birth(step, self.parts.streams.policy_version, self.parts.streams.update_counts())

    def _drop_step(self, before: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Sampler and streams return to where they were before the step."""
        self.parts.sampler.load_state_dict(before[0])
        self.parts.streams.load_state_dict(before[1])

    def _harvest(self, step: int, asked: Asked) -> tuple[list[Credited], Harvest]:
        """Credits this replica's bundles; returns that, and what all replicas have to tell of theirs."""
        parts, ranks = self.parts, self.parts.ranks
        rollouts = rollouts_of(asked.bundles)
        parts.engine.sleep()
        with self._timed("train", "scoring"):
            scores = score(parts.actor, ranks, rollouts, self.config.objective.reference_kl > 0, parts.cost)
        birth = self._birth(step)
        from_engine = self.config.rollout.behaviour_logprobs == "engine"
        credited = credit_bundles(parts.game, asked.bundles, birth, scores, from_engine)
        gaps, home = measure_gaps(rollouts, scores), ranks.places.replica_of(ranks.rank)
        told = harvest_of(parts.game, asked, credited, gaps, home)
        return credited, joined(of_leaders(ranks, told), asked.order)

    def _learn_of(self, harvest: Harvest, credited: Sequence[Credited]) -> None:
        """Puts the step's groups into their streams, keeps the tokens of our own, counts mastery, fills the row."""
        parts = self.parts
        for stream in parts.game.streams:
            parts.streams.offer(stream.name, [group for one in harvest.yields for group in one.groups[stream.name]])
        for one in harvest.yields:
            parts.sampler.observe(one.problem_id, one.mastered)
        if parts.game.memory is not None:
            parts.game.memory.remember([one.note for one in harvest.yields if one.note is not None])
        for group in chain.from_iterable(chain.from_iterable(groups.values()) for groups in credited):
            self.payloads.add(group)
        self._forget_payloads()
        self.row |= tally_metrics(parts.game, harvest.tally)
        self.row["rollout/inexact"] = int(harvest.inexact)
        self.row["time/judge_wait"] = harvest.judge_wait
        self.spent.generated_tokens += harvest.tally.generated

    def _forget_payloads(self) -> None:
        streams = self.parts.streams
        self.payloads.keep_only(chain.from_iterable(streams.pending(stream.name) for stream in self.parts.game.streams))

    # -- updates

    def _give_turn(self, stream: Stream) -> None:
        parts = self.parts
        for _ in range(stream.max_flushes):
            groups = parts.streams.take(stream.name)
            if groups is None:
                return
            taken: partial[dict[str, Any]] = partial(dict, taken=[group.id for group in groups])
            check_agreement(parts.ranks, f"update of {stream.name}", taken)
            flush = flush_parts(parts.game, stream, groups, self.config.objective)
            with self._timed("train", f"training {stream.name}"):
                sequences = own_sequences(parts.ranks, flush, self.payloads.of(groups), parts.cost)
                report = parts.actor.update(sequences, parts.losses[stream.name])
            self._forget_payloads()
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
        with self.disk.shrug("what was skipped"):
            keep_for_inspection(self.directory.logs, step, stream.name, self.parts.ranks.rank, report, sequences)

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
                self.parts.sync(engine, version)
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
        check_agreement(parts.ranks, f"step {step}", self._decisions)
        self.row |= from_first(parts.ranks, {key: self.row[key] for key in self.row if key.startswith("time/")})
        saving, self._snapshot_seconds = from_first(parts.ranks, self._snapshot_seconds), 0.0
        self.row |= step_totals(self.row, parts.streams, parts.sampler, saving, devices=parts.ranks.places.size)
        self.spent.seconds += float(self.row["time/step"] or 0.0)
        self.watch.step_done(self.row)
        self.row = {}
        if self.config.snapshot.every and step % self.config.snapshot.every == 0:
            self._save(must=False)

    def _decisions(self) -> dict[str, Any]:
        """What every rank must have decided alike."""
        state = self.state_dict()
        row = {key: value for key, value in state["row"].items() if not key.startswith("time/")}
        return {**state, "spent": self.spent.updates, "row": row}

    # -- stopping and saving

    def _stop_if_told(self) -> None:
        if any_rank(self.parts.ranks, self.stop.requested):
            self._save_and_stop()

    def _save_and_stop(self) -> NoReturn:
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
        ranks, folder = self.parts.ranks, self.directory.snapshots
        if from_first(ranks, (folder / self.cursor.name / "COMPLETE").exists()):
            return
        started = self.clock()
        with self._phase("snapshot"):
            write_shared_snapshot(
                ranks,
                folder,
                self.cursor,
                self.state_dict(),
                dump_config(self.config),
                settle=self.watch.settle,
                save_parts=self._save_parts,
            )
        if ranks.rank == 0:
            with self.disk.shrug("the removal of old snapshots"):
                remove_old(folder, self.config.snapshot.keep, self.config.snapshot.keep_every)
        self._snapshot_seconds += self.clock() - started

    def _save_parts(self, actor_folder: Path) -> None:
        """This rank's part of a snapshot: its share of the actor, and its replica's payloads if it leads it."""
        self.parts.actor.save(actor_folder)
        places, rank = self.parts.ranks.places, self.parts.ranks.rank
        replica = places.replica_of(rank)
        if rank == places.members(replica)[0]:
            self.payloads.save(actor_folder.parent / PAYLOADS, replica)

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
        """Goes back to where `state_dict` was taken, on the same or on other ranks."""
        self.cursor = Cursor(*state["cursor"])
        self.spent = Spent.from_state(state["spent"])
        self.row = dict(state["row"])
        self.nonfinite.in_a_row = state["nonfinite_in_a_row"]
        self.parts.sampler.load_state_dict(state["sampler"])
        self.parts.streams.load_state_dict(rehomed(state["streams"], self.parts.ranks.places.replicas))
        if self.parts.game.memory is not None and state.get("memory") is not None:
            self.parts.game.memory.load_state_dict(state["memory"])

    def restore(self, snapshot: Path, state: Mapping[str, Any]) -> None:
        """Goes on from a snapshot and its (perhaps adapted) state. Collective. Raises DataError."""
        ranks = self.parts.ranks
        self.load_state_dict(state)
        self.payloads.load(snapshot / PAYLOADS, ranks.places.replica_of(ranks.rank), ranks.places.replicas)
        self._forget_payloads()
        self.parts.actor.load(snapshot / "actor")

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
