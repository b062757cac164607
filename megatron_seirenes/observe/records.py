"""Rollout records: what was asked and answered in a collection step, for people and for later audits.

One gzip file a step (`rollouts/step-000012.jsonl.gz`), one JSON object a rollout, in the order of bundles, then of
stages, then of paths. The bytes depend on the records alone (no file name, no time in the gzip header, no CPU seconds
of verdicts), so two identical runs have identical files. A file appears whole or not at all (written beside, renamed).

A step's bundles may lie on several ranks: each encodes its own, and the members are written one after the other,
which is again one gzip file.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from megatron_seirenes.errors import DataError
from megatron_seirenes.records import Bundle, Group, Rollout

Record = dict[str, Any]
Decode = Callable[[Sequence[int]], str]

COMPRESSION_LEVEL = 1  # a sixth of the time of the usual 6 for a quarter more bytes


def record_path(run_dir: Path, step: int) -> Path:
    """Where the records of a collection step stand."""
    return run_dir / "rollouts" / f"step-{step:06d}.jsonl.gz"


def rollout_records(bundle: Bundle, groups: Mapping[str, Sequence[Group]], decode: Decode) -> list[Record]:
    """One record for each rollout of the bundle. Pure.

    `groups` is what the game credited, by stream, before any filtering; a rollout that no stream trains on has null
    reward, advantage and stream, and one that several train on shows the first. `decode` turns prompt ids into text.
    """
    credit = _credit(groups)
    rollouts = [rollout for stage in bundle.rollouts for rollout in bundle.of_stage(stage)]
    prompts = {ids: decode(ids) for ids in dict.fromkeys(rollout.request.prompt_ids for rollout in rollouts)}
    return [_record(bundle, item, prompts[item.request.prompt_ids], credit.get(item.id)) for item in rollouts]


def encode_records(records: Iterable[Record]) -> bytes:
    """The records as one gzip member; the same records give the same bytes."""
    lines = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    return gzip.compress(lines.encode("utf-8", "replace"), COMPRESSION_LEVEL, mtime=0)


def write_records(run_dir: Path, step: int, members: Iterable[bytes]) -> Path:
    """Writes the members (one a rank, in order of ranks) as the file of `step`, replacing an older one whole."""
    path = record_path(run_dir, step)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.writelines(members)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return path


def read_records(path: Path) -> Iterator[Record]:
    """The records of one file, in order. Raises DataError naming the file when it is not whole."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            yield from parse_records(file)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: not a file of rollout records: {error}") from error


def parse_records(lines: str | Iterable[str]) -> Iterator[Record]:
    """Records from the text of a file, or from its lines. Raises ValueError on a line that is not JSON."""
    for line in lines.split("\n") if isinstance(lines, str) else lines:
        if line:
            yield json.loads(line)


def _credit(groups: Mapping[str, Sequence[Group]]) -> dict[str, tuple[str, float, float]]:
    """Stream, reward and advantage by rollout id."""
    credit: dict[str, tuple[str, float, float]] = {}
    for stream, members in groups.items():
        for group in members:
            for rollout, reward, advantage in zip(group.rollouts, group.rewards, group.advantages, strict=True):
                credit.setdefault(rollout.id, (stream, reward, advantage))
    return credit


def _record(bundle: Bundle, rollout: Rollout, prompt: str, credit: tuple[str, float, float] | None) -> Record:
    request = rollout.request
    verdict = bundle.verdicts.get(rollout.id)
    stream, reward, advantage = credit if credit is not None else (None, None, None)
    return {
        "id": rollout.id,
        "problem_id": bundle.problem.id,
        "step": bundle.step,
        "stage": request.stage,
        "path": list(request.path),
        "parent": request.parent,
        "role": request.role,
        "policy": request.policy,
        "policy_version": rollout.policy_version,
        "question": bundle.problem.question,
        "gold": bundle.problem.answer,
        "prompt": prompt,
        "response": rollout.text,
        "prompt_tokens": len(request.prompt_ids),
        "response_tokens": len(rollout.response_ids),
        "finish_reason": rollout.finish_reason,
        "judged": verdict is not None,
        "correct": None if verdict is None else verdict.correct,
        "extracted": None if verdict is None else verdict.extracted,
        "reason": None if verdict is None else verdict.reason,
        "refused": bundle.refused.get(rollout.id),
        "stream": stream,
        "reward": reward,
        "advantage": advantage,
    }
