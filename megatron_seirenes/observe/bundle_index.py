"""What stands in a file of rollout records, and where: one short entry a bundle, so that one bundle can be read alone.

    rollouts/step-000012.jsonl.gz      gzip members one after the other, a bundle each
    rollouts/step-000012.index.json    for each bundle: what became of it, and where its member lies

The index is a cache: it holds nothing that the records do not. A file without one, or whose size is not the one that
the index names (a kill between the two writes), is read whole and indexed again in memory. Knows no game by name: a
rollout without a parent that is judged is a clean answer, one that is not judged is a hint.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.records import Record, encode_records, parse_records, record_path, write_records

QUESTION_SHOWN = 160
"""Characters of a question that the index keeps, to search in and to show in a list."""

_CHUNK = 1 << 20
_GZIP = 31  # zlib's window bits for a gzip member


@dataclass(frozen=True, slots=True)
class HintFacts:
    """One hint: its reward (null without credit), its answers' correct and judged counts, whether the gate refused."""

    reward: float | None
    correct: int
    judged: int
    refused: bool


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """What became of one question in one step. `reward` is its clean answers' mean reward, null without credit."""

    problem_id: str
    question: str
    correct: int
    judged: int
    reward: float | None
    hints: tuple[HintFacts, ...]

    @property
    def gap(self) -> float:
        """The largest share of success that a hint took away; 0 without judged answers on both sides."""
        under = [hint.correct / hint.judged for hint in self.hints if hint.judged]
        return self.correct / self.judged - min(under) if self.judged and under else 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A bundle of a file: its facts, and the member (`size` bytes from `offset`) that holds its records."""

    facts: BundleFacts
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class EncodedBundle:
    """A bundle ready to be written: its records as one gzip member, and its facts (None without records)."""

    member: bytes
    facts: BundleFacts | None


def encode_bundle(records: Sequence[Record]) -> EncodedBundle:
    """Pure; the same records give the same bytes. All records must be of one question."""
    return EncodedBundle(encode_records(records), bundle_facts(records) if records else None)


def encode_bundles(bundles: Iterable[Sequence[Record]], pool: Executor) -> list[EncodedBundle]:
    """`encode_bundle` of each, in order; zlib releases the interpreter lock, so threads of `pool` do help."""
    return list(pool.map(encode_bundle, bundles))


def write_bundles(run_dir: Path, step: int, bundles: Sequence[EncodedBundle]) -> Path:
    """Writes the record file of `step` and then its index; returns the path of the record file."""
    path = write_records(run_dir, step, (bundle.member for bundle in bundles))
    entries, offset = [], 0
    for bundle in bundles:
        if bundle.facts is not None:
            entries.append(Entry(bundle.facts, offset, len(bundle.member)))
        offset += len(bundle.member)
    _write_index(path, entries)
    return path


def read_index(path: Path) -> list[Entry]:
    """The bundles of a record file, in order. Raises DataError naming a record file that is not whole."""
    try:
        written = json.loads(index_path(path).read_text(encoding="utf-8"))
        if written["bytes"] == path.stat().st_size:
            return [_entry(item) for item in written["bundles"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return _scan(path)


def read_bundle(path: Path, entry: Entry) -> list[Record]:
    """The records of one bundle, nothing else of the file being read. Raises DataError naming the file."""
    with path.open("rb") as file:
        file.seek(entry.offset)
        member = file.read(entry.size)
    try:
        text = zlib.decompress(member, _GZIP).decode("utf-8")
        return [record for record in parse_records(text) if record["problem_id"] == entry.facts.problem_id]
    except (zlib.error, ValueError) as error:
        raise DataError(f"{path}: no records at byte {entry.offset}: {error}") from error


def bundle_facts(records: Sequence[Record]) -> BundleFacts:
    """The facts of one question's records. Pure."""
    children: Mapping[str, list[Record]] = defaultdict(list)
    for record in records:
        if record["parent"] is not None:
            children[record["parent"]].append(record)
    roots = [record for record in records if record["parent"] is None]
    clean = [record for record in roots if record["judged"]]
    hints = [record for record in roots if not record["judged"]]
    rewards = [record["reward"] for record in clean if record["reward"] is not None]
    return BundleFacts(
        problem_id=records[0]["problem_id"],
        question=records[0]["question"][:QUESTION_SHOWN],
        correct=_correct(clean),
        judged=len(clean),
        reward=fmean(rewards) if rewards else None,
        hints=tuple(_hint_facts(hint, children[hint["id"]]) for hint in hints),
    )


def index_path(path: Path) -> Path:
    """Where the index of a record file stands."""
    return path.with_name(path.name.removesuffix(".jsonl.gz") + ".index.json")


def remove_records_after(run_dir: Path, step: int) -> int:
    """Removes the files of later steps, as a run does that goes on from `step`; returns the number of steps removed."""
    last = record_path(run_dir, step).name
    later = sorted(path for path in (run_dir / "rollouts").glob("step-*.jsonl.gz") if path.name > last)
    for path in later:
        index_path(path).unlink(missing_ok=True)
        path.unlink()
    return len(later)


def _hint_facts(hint: Record, answers: Sequence[Record]) -> HintFacts:
    judged = [record for record in answers if record["judged"]]
    return HintFacts(hint["reward"], _correct(judged), len(judged), hint["refused"] is not None)


def _correct(records: Iterable[Record]) -> int:
    return sum(record["correct"] is True for record in records)


def _write_index(path: Path, entries: Sequence[Entry]) -> None:
    index = {"bytes": path.stat().st_size, "bundles": [asdict(entry) for entry in entries]}
    target = index_path(path)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")
    os.replace(partial, target)


def _entry(item: Mapping) -> Entry:
    facts = dict(item["facts"])
    hints = tuple(HintFacts(**hint) for hint in facts.pop("hints"))
    return Entry(BundleFacts(**facts, hints=hints), item["offset"], item["size"])


def _scan(path: Path) -> list[Entry]:
    """The index made from the records themselves."""
    entries: list[Entry] = []
    for offset, size, text in _members(path):
        questions: dict[str, list[Record]] = {}
        for record in parse_records(text):
            questions.setdefault(record["problem_id"], []).append(record)
        entries.extend(Entry(bundle_facts(records), offset, size) for records in questions.values())
    return entries


def _members(path: Path) -> Iterator[tuple[int, int, str]]:
    """Offset, size and text of each gzip member of a file."""
    with path.open("rb") as file:
        offset, data = 0, file.read(_CHUNK)
        while data:
            inflate, pieces, size = zlib.decompressobj(_GZIP), [], 0
            while not inflate.eof:
                if not data:
                    raise DataError(f"{path}: not a file of rollout records: it ends inside a member")
                try:
                    pieces.append(inflate.decompress(data))
                except zlib.error as error:
                    raise DataError(f"{path}: not a file of rollout records: {error}") from error
                size += len(data) - len(inflate.unused_data)
                data = inflate.unused_data or file.read(_CHUNK)
            yield offset, size, b"".join(pieces).decode("utf-8")
            offset += size
