"""Which questions of a pool are the same, and which are asked by a benchmark too. Pure; the first of equals stays.

*Exact*: the same tokens after case, spacing, dollar signs and LaTeX's spacing commands are taken off. Equal questions
with different answers are a fault of the data: all of them go. *Near*: the same numbers, and a share of common token
triples (Jaccard) of at least a threshold; other numbers make another question. *Overlap*: so many words in a row in
common with a benchmark's question, or the whole question where it is shorter. Words in a row that several different
benchmark questions share ("where m and n are relatively prime positive integers") are the field's phrases and do not
count.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from megatron_seirenes.records import Problem

Reason = Literal["exact duplicate", "conflicting answers", "near duplicate", "overlap"]

BANDS, ROWS = 16, 4
"""Questions as similar as 0.8 share one of 16 bands of 4 hashes with probability 0.9998."""

_SPACING = re.compile(r"\\(?:[,;:!]|left\b|right\b|displaystyle\b|quad\b|qquad\b)|[$~]")
_TOKEN = re.compile(r"[^\W_]+|[^\w\s]|_")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Removal:
    """Why a problem is left out. `other` is the id of the problem it is compared with, `benchmark` whose that is."""

    problem_id: str
    reason: Reason
    other: str
    benchmark: str | None = None


def tokens(text: str) -> list[str]:
    """The tokens of a question: runs of letters and digits, and single symbols; without a final mark."""
    found = _TOKEN.findall(_SPACING.sub(" ", unicodedata.normalize("NFKC", text).casefold()))
    while found and found[-1] in ".?!":
        found.pop()
    return found


def words(text: str) -> list[str]:
    """The tokens that are letters or digits."""
    return [token for token in tokens(text) if token[0].isalnum()]


def exact_duplicates(problems: Sequence[Problem], same_answer: Callable[[str, str], bool]) -> list[Removal]:
    """Every problem whose question an earlier one asks, or all of them when their answers differ."""
    groups: dict[tuple[str, ...], list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[tuple(tokens(problem.question))].append(problem)
    removals = []
    for first, *others in groups.values():
        if all(same_answer(first.answer, other.answer) for other in others):
            removals += [Removal(other.id, "exact duplicate", first.id) for other in others]
        else:
            removals += [Removal(problem.id, "conflicting answers", first.id) for problem in (first, *others)]
    return removals


def near_duplicates(problems: Sequence[Problem], threshold: float) -> list[Removal]:
    """Every problem with the numbers and at least `threshold` of the token triples of an earlier one that stays.

    Candidates are found by MinHash over bands and decided on the triples themselves.
    """
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    features: list[tuple[Counter[str], frozenset[int]]] = []
    removals = []
    for index, problem in enumerate(problems):
        features.append((Counter(_NUMBER.findall(problem.question)), _triples(tokens(problem.question))))
        keys = [(band, part.tobytes()) for band, part in enumerate(_signature(features[index][1]).reshape(BANDS, ROWS))]
        candidates = sorted({other for key in keys for other in buckets[key]})
        twin = next((other for other in candidates if _alike(features[index], features[other], threshold)), None)
        if twin is not None:
            removals.append(Removal(problem.id, "near duplicate", problems[twin].id))
            continue
        for key in keys:
            buckets[key].append(index)
    return removals


def overlaps(
    problems: Iterable[Problem], benchmarks: Mapping[str, Sequence[Problem]], words_in_a_row: int
) -> list[Removal]:
    """Every problem that shares `words_in_a_row` with a benchmark's question; the first such question is named."""
    grams: dict[tuple[str, ...], tuple[str, str]] = {}
    owners: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for name, questions in benchmarks.items():
        for question in questions:
            spoken = words(question.question)
            for gram in _grams(spoken, words_in_a_row):
                grams.setdefault(gram, (name, question.id))
                owners[gram].add(tuple(spoken))
    removals = []
    for problem in problems:
        asked = _grams(words(problem.question), words_in_a_row)
        shared = [gram for gram in asked if gram in owners and len(owners[gram]) == 1]
        if shared:
            name, question_id = grams[shared[0]]
            removals.append(Removal(problem.id, "overlap", question_id, name))
    return removals


def _grams(spoken: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    """All runs of `length` words; the whole of a shorter text."""
    for start in range(max(1, len(spoken) - length + 1)):
        yield tuple(spoken[start : start + length])


def _triples(found: Sequence[str]) -> frozenset[int]:
    """Hashes of all runs of three tokens; of all tokens together when there are fewer."""
    runs = (found[start : start + 3] for start in range(max(1, len(found) - 2)))
    return frozenset(zlib.crc32("\x1f".join(run).encode("utf-8", "replace")) for run in runs)


def _signature(triples: frozenset[int]) -> np.ndarray:
    """The smallest value of each of BANDS * ROWS hash functions over the triples, as uint32."""
    values = np.fromiter(triples, dtype=np.uint64, count=len(triples))
    return ((_FACTORS[:, None] * values + _OFFSETS[:, None]) >> np.uint64(32)).min(axis=1).astype(np.uint32)


def _alike(
    one: tuple[Counter[str], frozenset[int]], other: tuple[Counter[str], frozenset[int]], threshold: float
) -> bool:
    if one[0] != other[0]:
        return False
    common = len(one[1] & other[1])
    return common >= threshold * (len(one[1]) + len(other[1]) - common)


_DRAWN = np.random.default_rng(0)
_FACTORS = _DRAWN.integers(1, 2**63, BANDS * ROWS, dtype=np.uint64) | np.uint64(1)
_OFFSETS = _DRAWN.integers(0, 2**63, BANDS * ROWS, dtype=np.uint64)
