"""Going on with a run: from which snapshot, whether it is the same run, and what changed since.

What makes a run itself is its policy, its game and its questions (the fingerprint). A snapshot with another of these is
refused, unless the user names that difference: then what no longer fits is dropped, and said. Every other key of the
configuration may change between a snapshot and the run that goes on from it (rates, budgets, cadences, evaluation); the
changes are printed and kept in `logs/changes.log`.

A run that was killed before its first snapshot starts over, if its directory holds the same configuration. Snapshots
later than the one that is used (broken ones, and those of a line that was left by `--resume PATH`) are put aside under
another name: neither a later resume nor the removal of old ones may mistake them for this run's.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from megatron_seirenes.config.loading import dump_config
from megatron_seirenes.config.schema import Config
from megatron_seirenes.errors import UsageError
from megatron_seirenes.games.game import Game
from megatron_seirenes.observe.writer import read_metrics
from megatron_seirenes.problems.sampler import ProblemSampler
from megatron_seirenes.records import Problem
from megatron_seirenes.roles.role import Role, Roles
from megatron_seirenes.trainer.assembly import PolicyAssets
from megatron_seirenes.trainer.run_directory import RunDirectory
from megatron_seirenes.trainer.snapshot import Cursor, fault_of, newest_sound_snapshot, read_state, snapshot_folders

Fingerprint = dict[str, dict[str, str]]
"""What a run is, by kind: `model`, `game`, `problems`, each a mapping of facts to readable values or digests."""

KINDS = ("model", "game", "problems")
FREE_SECTIONS = ("optimizer", "snapshot", "observe", "evaluation", "faults", "warmup")
"""Sections that may differ in a directory whose run is started over; of `run`, the budgets may."""

SAMPLE = 1 << 20
"""Bytes at either end of a weight file that stand for the whole of it."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt")


def check_accepted(accepted: Collection[str]) -> frozenset[str]:
    """The differences that the user means. Raises UsageError for an unknown one."""
    unknown = sorted(set(accepted) - set(KINDS))
    if unknown:
        raise UsageError(f"--accept: {', '.join(unknown)}: expected {', '.join(KINDS)}")
    return frozenset(accepted)


# -- from where


def snapshot_to_resume(directory: RunDirectory, resume: str, report: Callable[[str], None]) -> Path | None:
    """The snapshot that `resume` (auto, never or a path) asks for; None to start.

    Raises UsageError when the path is no sound snapshot, or when every snapshot of the run is broken.
    """
    if resume == "never":
        return None
    if resume != "auto":
        path = Path(resume)
        fault = fault_of(path)
        if fault is not None:
            raise UsageError(f"--resume: {path} is not a complete snapshot: {fault}")
        return path
    found = newest_sound_snapshot(directory.snapshots, report)
    if found is None and snapshot_folders(directory.snapshots):
        raise UsageError(f"run.dir: every snapshot of {directory.snapshots} is broken; mend one, or remove the run")
    return found


def claim(directory: RunDirectory, config: Config, snapshot: Path | None, resume: str) -> str | None:
    """Makes the directory this run's and leaves the resolved configuration behind; says what was dropped, if anything.

    Raises UsageError for a directory that holds another run, or this one with `resume` never.
    """
    restarted = None
    if snapshot is None and (directory.holds_a_run() or snapshot_folders(directory.snapshots)):
        if resume == "never" or not _same_run(directory, config):
            raise UsageError(
                f"run.dir: {directory.path} already holds a run; name another run.name or run.dir, remove it, "
                "or go on with --resume auto"
            )
        rows = len(read_metrics(directory.metrics))
        restarted = f"the run was ended before its first snapshot: it starts over ({rows} steps are made again)"
    directory.stopped_marker.unlink(missing_ok=True)
    partial = directory.config.with_suffix(".partial")
    partial.write_text(dump_config(config), encoding="utf-8")
    partial.replace(directory.config)
    return restarted


def _same_run(directory: RunDirectory, config: Config) -> bool:
    """Whether the directory's configuration is this one, apart from what may change."""
    try:
        before = yaml.safe_load(directory.config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    changed = [change.key for change in config_changes(before, config.model_dump(mode="json"))]
    free = (*(f"{section}." for section in FREE_SECTIONS), "run.budget.", "run.collection_steps")
    return not [key for key in changed if not key.startswith(free)]


def put_aside(folder: Path, cursor: Cursor | None, report: Callable[[str], None]) -> None:
    """Cleans what a kill left half-written in `folder`, and renames every snapshot later than `cursor`."""
    for partial in sorted(folder.glob(".*.partial")):
        shutil.rmtree(partial, ignore_errors=True)
    for path in sorted(folder.iterdir()):
        found = Cursor.parse(path.name)
        if found is None or (cursor is not None and found.order <= cursor.order):
            continue
        aside = path.with_name(f"{path.name}.aside")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        report(f"{path.name} is later than where the run goes on: kept as {aside.name}, remove it when you like")


# -- whether it is the same run


def run_fingerprint(game: Game, roles: Roles, assets: PolicyAssets, problems: Sequence[Problem]) -> Fingerprint:
    """What must be the same in a snapshot and in the run that goes on from it."""

    def texts(role: Role) -> tuple[str | None, ...]:
        return (role.prompt.system, role.prompt.user, role.prompt.user_with_hint)

    return {
        "model": {
            **{name: str(value) for name, value in asdict(assets.architecture).items()},
            "tokenizer": _digest(_contents(assets.folder, TOKENIZER_FILES)),
            "chat template": _digest([str(assets.tokenizer.chat_template).encode()]),
            "weights": _digest(_samples(sorted(assets.folder.glob("*.safetensors")))),
        },
        "game": {
            "name": game.name,
            **{
                f"stage {stage.name}": f"{stage.role} x {stage.samples}, {stage.max_tokens} tokens"
                for stage in game.stages
            },
            "streams": ", ".join(stream.name for stream in game.streams),
            **{f"prompt of {name}": _digest([repr(texts(role)).encode()]) for name, role in roles.items()},
        },
        "problems": {
            "count": str(len(problems)),
            "contents": _digest(f"{p.id}\0{p.question}\0{p.answer}\0".encode() for p in problems),
        },
    }


def differences(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """By kind, one line a fact that differs."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        was, is_ = before.get(kind, {}), now.get(kind, {})
        names = dict.fromkeys(chain(was, is_))
        lines = [f"{name}: {was.get(name)} -> {is_.get(name)}" for name in names if was.get(name) != is_.get(name)]
        if lines:
            found[kind] = lines
    return found


@dataclass(frozen=True, slots=True)
class Resumption:
    """A snapshot that was found to be of this run, apart from `differences`, which the user accepted."""

    snapshot: Path
    state: dict[str, Any]
    differences: Mapping[str, Sequence[str]]


def open_snapshot(snapshot: Path, fingerprint: Fingerprint, accepted: Collection[str]) -> Resumption:
    """Reads `snapshot` for the run with this fingerprint.

    Raises DataError when it cannot be read, UsageError naming the differences that the user did not accept.
    """
    state = read_state(snapshot)
    found = differences(state["fingerprint"], fingerprint)
    refused = {kind: lines for kind, lines in found.items() if kind not in accepted}
    if refused:
        lines = [f"\n  {kind}: {line}" for kind, lines in refused.items() for line in lines]
        options = " ".join(f"--accept {kind}" for kind in refused)
        raise UsageError(
            f"{snapshot}: made with another {' and another '.join(refused)}; use the configuration it was made with, "
            f"start a new run (run.name), or add {options} if this is what you mean{''.join(lines)}"
        )
    return Resumption(snapshot, state, found)


def check_optimizer_kind(snapshot: Path, config: Config) -> None:
    """Raises UsageError when the other kind of optimizer saved: Megatron-Core cannot put one's state into the other."""
    saved = bool(_config_of(snapshot)["parallel"]["distributed_optimizer"])
    if saved != config.parallel.distributed_optimizer:
        must = f"parallel.distributed_optimizer={_written(saved)}"
        raise UsageError(
            f"{snapshot}: made with {must}; the other kind of optimizer cannot take its state. Go on with {must}: it "
            "runs on any number of processes"
        )


def adapted_state(resumed: Resumption, game: Game, sampler: ProblemSampler) -> dict[str, Any]:
    """The snapshot's state made to fit this run. Raises UsageError for another game or model inside a step.

    Groups that wait were made by the snapshot's game and in its policy's tokens: with another game or model they are
    dropped, and so are the update counters of streams that the game no longer has. With other problems a new epoch
    begins, in which problems that were mastered stay retired.
    """
    state = dict(resumed.state)
    if "problems" in resumed.differences:
        state["sampler"] = _sampler_state(state["sampler"], sampler)
    if "game" in resumed.differences or "model" in resumed.differences:
        state["streams"] = _streams_state(state, game, resumed.snapshot)
    if "game" in resumed.differences:
        state["memory"] = None
    return state


def _sampler_state(state: Mapping[str, Any], sampler: ProblemSampler) -> dict[str, Any]:
    known = sampler.ids
    return {
        **state,
        "pool": sampler.state_dict()["pool"],
        "queue": [],
        "streaks": {key: streak for key, streak in state["streaks"].items() if key in known},
        "retired": [key for key in state["retired"] if key in known],
    }


def _streams_state(state: Mapping[str, Any], game: Game, snapshot: Path) -> dict[str, Any]:
    if state["cursor"][1] is not None:
        raise UsageError(
            f"{snapshot}: lies inside a collection step, which only its own game and model can finish; "
            "let it go on for a step with the configuration it was made with, or name a snapshot between two steps"
        )
    streams = state["streams"]
    names = [stream.name for stream in game.streams]
    return {
        "updates": {name: streams["updates"].get(name, 0) for name in names},
        "queues": {name: {"pending": [], "newest_step": -1, "offered_ids": []} for name in names},
        "tally": {name: streams["tally"].get(name, {}) for name in names},
    }


# -- what changed


@dataclass(frozen=True, slots=True)
class Change:
    """One key of the configuration that differs between two runs."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.key}: {_written(self.before)} -> {_written(self.now)}"


def config_changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[Change]:
    """Every key whose value differs, in the order of `now`; a key that one of them lacks counts as null."""
    changes: list[Change] = []
    for key in dict.fromkeys(chain(now, before)):
        was, is_ = before.get(key), now.get(key)
        if isinstance(was, Mapping) and isinstance(is_, Mapping):
            changes += config_changes(was, is_, f"{prefix}{key}.")
        elif was != is_:
            changes.append(Change(f"{prefix}{key}", was, is_))
    return changes


def log_changes(directory: RunDirectory, resumed: Resumption, config: Config) -> list[str]:
    """Adds what changed since the snapshot was made to logs/changes.log; returns it, one line a change."""
    snapshot = resumed.snapshot
    before = _config_of(snapshot)
    accepted = [f"another {kind}: {line}" for kind, lines in resumed.differences.items() for line in lines]
    changes = accepted + [str(change) for change in config_changes(before, config.model_dump(mode="json"))]
    if changes:
        with (directory.logs / "changes.log").open("a", encoding="utf-8") as file:
            file.writelines(f"{snapshot.name}: {change}\n" for change in changes)
    return changes


def _config_of(snapshot: Path) -> dict[str, Any]:
    return yaml.safe_load((snapshot / "config.yaml").read_text(encoding="utf-8"))


def _written(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()


def _digest(parts: Iterator[bytes] | Sequence[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _contents(folder: Path, names: Sequence[str]) -> list[bytes]:
    return [name.encode() + (folder / name).read_bytes() for name in names if (folder / name).exists()]


def _samples(paths: Sequence[Path]) -> Iterator[bytes]:
    """The size and both ends of each file: enough to tell checkpoints apart, and quick for any size."""
    for path in paths:
        size = path.stat().st_size
        yield f"{size}\0".encode()
        with path.open("rb") as file:
            yield file.read(SAMPLE)
            file.seek(max(SAMPLE, size - SAMPLE))
            yield file.read()
