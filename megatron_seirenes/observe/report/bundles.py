"""What the bundle browser knows: every bundle of every run in short, and the texts of a few of them.

The page holds one line of facts a bundle, so that filters work without opening a file, and the shortened texts of
`--bundles` bundles a run. Any other bundle is read by the page from the run's own record file, once the reader has
shown it the folder: its line says where in the file it lies. Choice and shortening are deterministic; what a model
wrote stays plain data here, and enters the page as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.observe.bundle_index import BundleFacts, Entry, read_bundle, read_index
from megatron_seirenes.observe.plain_text import shorten
from megatron_seirenes.observe.records import Record
from megatron_seirenes.observe.report.data import Run

BUNDLES = 24
"""Bundles of a run whose texts are packed into the page."""

TEXT_LIMIT = 2_000
"""Characters that are kept of a packed text."""

SHOWN = (
    "id",
    "stage",
    "role",
    "parent",
    "response",
    "response_tokens",
    "finish_reason",
    "judged",
    "correct",
    "extracted",
    "reason",
    "refused",
    "stream",
    "reward",
    "advantage",
)
"""The keys of a record that the browser shows."""


@dataclass(frozen=True, slots=True)
class RunBundles:
    """The record files of a run, its bundles in order of steps (the number of the file, the entry), and the chosen."""

    run: Run
    files: tuple[Path, ...]
    entries: tuple[tuple[int, Entry], ...]
    packed: tuple[int, ...]


def find_bundles(run: Run, limit: int = BUNDLES) -> RunBundles:
    """Every bundle that the run has written. Raises DataError naming a record file that is not whole."""
    files = tuple(run.record_files())
    entries = tuple((number, entry) for number, file in enumerate(files) for entry in read_index(file))
    return RunBundles(run, files, entries, tuple(choose(entries, limit)))


def choose(entries: Sequence[tuple[int, Entry]], limit: int) -> list[int]:
    """Which bundles to pack: spread evenly over the files, of each those whose hints misled most. In order."""
    by_file: dict[int, list[int]] = {}
    for index, (file, _) in enumerate(entries):
        by_file.setdefault(file, []).append(index)
    files = list(by_file.values())
    chosen: list[int] = []
    for place, count in _shares([len(members) for members in files], limit):
        chosen += sorted(files[place], key=lambda index: -entries[index][1].facts.gap)[:count]
    return sorted(chosen)


def for_page(found: RunBundles) -> dict[str, Any]:
    """The run as the page's script reads it: columns over bundles, and the records of the packed ones."""
    problems: dict[str, int] = {}
    questions: list[str] = []
    for _, entry in found.entries:
        if entry.facts.problem_id not in problems:
            problems[entry.facts.problem_id] = len(problems)
            questions.append(entry.facts.question)
    entries = found.entries
    return {
        "name": found.run.name,
        "files": [path.name for path in found.files],
        "steps": [step_of(path) for path in found.files],
        "problems": list(problems),
        "questions": questions,
        "file": [file for file, _ in entries],
        "problem": [problems[entry.facts.problem_id] for _, entry in entries],
        "offset": [entry.offset for _, entry in entries],
        "size": [entry.size for _, entry in entries],
        "correct": [entry.facts.correct for _, entry in entries],
        "judged": [entry.facts.judged for _, entry in entries],
        "reward": [_rounded(entry.facts.reward) for _, entry in entries],
        "hints": [_hints(entry.facts) for _, entry in entries],
        "packed": {str(index): _pack(found, index) for index in found.packed},
    }


def step_of(path: Path) -> int:
    """The collection step of a record file: 12 for `step-000012.jsonl.gz`."""
    return int(path.name.removeprefix("step-").removesuffix(".jsonl.gz"))


def _shares(sizes: Sequence[int], limit: int) -> Iterable[tuple[int, int]]:
    """File and number of bundles to take from it, evenly spaced; of two files or more the first and the last."""
    count = min(len(sizes), max(2, limit // 2), limit)
    last = len(sizes) - 1
    places = [round(number * last / (count - 1)) for number in range(count)] if count > 1 else [last][:count]
    left = limit
    for number, place in enumerate(places):
        taken = min(-(-left // (count - number)), sizes[place])
        left -= taken
        yield place, taken


def _pack(found: RunBundles, index: int) -> dict[str, Any]:
    file, entry = found.entries[index]
    records = read_bundle(found.files[file], entry)
    first = records[0]
    return {
        "question": shorten(first["question"], TEXT_LIMIT),
        "gold": shorten(str(first["gold"]), TEXT_LIMIT),
        "records": [_light(record) for record in records],
    }


def _light(record: Record) -> Mapping[str, Any]:
    kept = {key: record[key] for key in SHOWN}
    extracted = record["extracted"]
    return kept | {
        "response": shorten(record["response"], TEXT_LIMIT),
        "characters": len(record["response"]),
        "extracted": None if extracted is None else shorten(extracted, TEXT_LIMIT),
    }


def _hints(facts: BundleFacts) -> list[list[float | int | None]]:
    return [[_rounded(hint.reward), hint.correct, hint.judged, int(hint.refused)] for hint in facts.hints]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
