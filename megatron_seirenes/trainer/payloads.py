"""The tokens and log-probabilities of waiting groups, kept by the replica that made them until a flush trains on them.

Streams hold summaries; a payload lies here under (stream, group id), on every rank of its home replica. A group whose
log-probabilities are not finite, or not one a token, is refused: it would spoil an update or, where the ratio is
clipped, be trained on unseen.

On the disk (a snapshot's `payloads/00003.npz`, one file a home replica, written by its leader) integers are int32 and
log-probabilities float64, so what is read is what was written. A run that resumes with other replicas reads the files
of the homes that became its own.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from megatron_seirenes.errors import DataError, SeirenesError
from megatron_seirenes.records import Group, GroupSummary, Rollout

Key = tuple[str, str]
ARRAYS: dict[str, type] = {
    "prompt_ids": np.int32,
    "response_ids": np.int32,
    "old_logprobs": np.float64,
    "reference_logprobs": np.float64,
    "behaviour_logprobs": np.float64,
}
"""The arrays of a payload, in the order of its fields."""

Integers = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """One rollout: what training needs beside its group's summary. `reference_logprobs` is empty without a KL term,
    `behaviour_logprobs`, the engine's, when the objective does not correct for the engine."""

    rollout_id: str
    prompt_ids: Integers
    response_ids: Integers
    old_logprobs: Floats
    reference_logprobs: Floats
    behaviour_logprobs: Floats


def summary_of(group: Group, home: int) -> GroupSummary:
    """The group as decisions see it."""
    return GroupSummary(
        id=group.id,
        problem_id=group.problem_id,
        stream=group.stream,
        stage=group.stage,
        prompt_tokens=tuple(len(rollout.request.prompt_ids) for rollout in group.rollouts),
        response_tokens=group.response_tokens,
        advantages=group.advantages,
        has_signal=group.has_signal,
        birth=group.birth,
        home=home,
    )


def payloads_of(group: Group, with_behaviour: bool) -> tuple[Payload, ...]:
    """One payload a rollout, in order. Raises SeirenesError for log-probabilities that cannot be trained on."""
    reference = group.reference_logprobs or ((),) * len(group.rollouts)
    return tuple(
        Payload(
            rollout.id,
            np.asarray(rollout.request.prompt_ids, np.int32),
            np.asarray(rollout.response_ids, np.int32),
            np.asarray(_checked(rollout, "behaviour", old), np.float64),
            np.asarray(_checked(rollout, "reference", known) if known else (), np.float64),
            np.asarray(rollout.behaviour_logprobs if with_behaviour else (), np.float64),
        )
        for rollout, old, known in zip(group.rollouts, group.old_logprobs, reference, strict=True)
    )


def _checked(rollout: Rollout, kind: str, logprobs: Sequence[float]) -> Sequence[float]:
    if len(logprobs) != len(rollout.response_ids):
        raise SeirenesError(
            f"rollout {rollout.id}: {len(logprobs)} {kind} log-probabilities for "
            f"{len(rollout.response_ids)} response tokens"
        )
    if not all(map(math.isfinite, logprobs)):
        raise SeirenesError(
            f"rollout {rollout.id}: a {kind} log-probability is not finite; the weights that scored it differ "
            "from those that sampled it, or are not numbers (see the mismatch/* metrics)"
        )
    return logprobs


class PayloadStore:
    """The payloads of one replica's waiting groups; `with_behaviour` keeps the engine's log-probabilities too."""

    def __init__(self, with_behaviour: bool = False) -> None:
        self._with_behaviour = with_behaviour
        self._groups: dict[Key, tuple[Payload, ...]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, group: Group) -> None:
        """Keeps the payloads of a group with signal. Raises SeirenesError as `payloads_of` does."""
        if group.has_signal:
            self._groups[group.stream, group.id] = payloads_of(group, self._with_behaviour)

    def keep_only(self, waiting: Iterable[GroupSummary]) -> None:
        """Forgets every group that is not waiting any more."""
        kept = {(summary.stream, summary.id) for summary in waiting}
        self._groups = {key: payloads for key, payloads in self._groups.items() if key in kept}

    def of(self, summaries: Iterable[GroupSummary]) -> dict[tuple[str, str, int], Payload]:
        """The payloads that lie here, of these groups, by stream, group id and index of the rollout."""
        found = ((summary.stream, summary.id) for summary in summaries)
        return {
            (*key, index): payload
            for key in found
            if key in self._groups
            for index, payload in enumerate(self._groups[key])
        }

    # -- snapshots

    def save(self, folder: Path, home: int) -> None:
        """Writes this replica's file and flushes it to the disk. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        payloads = list(chain.from_iterable(self._groups.values()))
        index = [[*key, [payload.rollout_id for payload in group]] for key, group in self._groups.items()]
        with (folder / f"{home:05d}.npz").open("wb") as file:
            np.savez(
                file,
                index=np.frombuffer(json.dumps(index).encode(), np.uint8),
                lengths=np.array(
                    [[len(getattr(payload, name)) for name in ARRAYS] for payload in payloads], np.int64
                ).reshape(-1, len(ARRAYS)),
                **{
                    name: np.concatenate([np.empty(0, dtype), *(getattr(payload, name) for payload in payloads)])
                    for name, dtype in ARRAYS.items()
                },
            )
            file.flush()
            os.fsync(file.fileno())

    def load(self, folder: Path, replica: int, replicas: int) -> None:
        """Reads the file of every home that is this replica's now (`new_home`). Raises DataError."""
        self._groups = {}
        for path in sorted(folder.glob("*.npz")):
            if new_home(int(path.stem), replicas) == replica:
                self._groups |= _read(path)


def new_home(home: int, replicas: int) -> int:
    """The replica that takes over what lay with replica `home` of another layout."""
    return home % replicas


def rehomed(streams: Mapping[str, Any], replicas: int) -> dict[str, Any]:
    """The state of the streams with every waiting group at its home among `replicas` replicas."""
    queues = {
        name: {**queue, "pending": [{**group, "home": new_home(group["home"], replicas)} for group in queue["pending"]]}
        for name, queue in streams["queues"].items()
    }
    return {**streams, "queues": queues}


def _read(path: Path) -> Mapping[Key, tuple[Payload, ...]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        index = json.loads(arrays["index"].tobytes())
        parts = _parts(arrays)
        return {
            (stream, group): tuple(Payload(rollout_id, *next(parts)) for rollout_id in rollout_ids)
            for stream, group, rollout_ids in index
        }
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as the payloads of a snapshot: {error}") from None


def _parts(arrays: Mapping[str, NDArray]) -> Iterator[tuple[NDArray, ...]]:
    """The arrays of each rollout, in order of `ARRAYS`."""
    bounds = [np.cumsum(column)[:-1] for column in arrays["lengths"].T]
    return zip(*(np.split(arrays[name], ends) for name, ends in zip(ARRAYS, bounds, strict=True)), strict=True)
