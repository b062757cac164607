"""The timeline: what ran when, as a Chrome trace that opens in Perfetto.

`Timeline` collects spans in memory (one process of the trace a rank, one thread a track), `TimelineFile` appends what
was drained from it. Ranks are gathered by whoever drains: events of several ranks may be appended to one file.

Invariants: the file is a whole JSON array after every `append`, and a torn end left by a kill is cut off when it is
opened again; memory holds at most `limit` spans between two drains, further ones are counted and shown as one instant
event; a track has the same thread id in every rank and every session. Times come from the injected clock, in seconds;
`steady_clock` gives seconds since the epoch that never run backwards, so that ranks and sessions line up.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import IO, Any

Clock = Callable[[], float]
Event = dict[str, Any]

SPAN_LIMIT = 200_000
_OPEN, _CLOSE = b"[\n", b"\n]\n"
_TAIL = 1 << 20  # more than any event is long


def steady_clock() -> Clock:
    """Seconds since the epoch, read once and carried on by a counter that never runs backwards."""
    offset = time.time() - time.perf_counter()
    return lambda: offset + time.perf_counter()


@dataclass(frozen=True, slots=True)
class Span:
    """Something that ran from `start` to `end` (seconds of the timeline's clock)."""

    name: str
    start: float
    end: float
    args: Mapping[str, Any] = field(default_factory=dict)


class Timeline:
    """Collects the spans of one rank until they are drained."""

    def __init__(self, clock: Clock, rank: int = 0, limit: int = SPAN_LIMIT):
        self._clock = clock
        self._rank = rank
        self._limit = limit
        self._tracks: dict[str, int] = {}
        self._events: list[Event] = [_metadata("process_name", rank, 0, name=f"rank {rank}")]
        self._spans = 0
        self._dropped = 0

    @contextmanager
    def span(self, name: str, category: str, track: str, **args: Any) -> Iterator[None]:
        """Records the time spent inside, also when it ends by an exception."""
        start = self._clock()
        try:
            yield
        finally:
            self.add(name, category, start, self._clock(), track, args)

    def add(
        self,
        name: str,
        category: str,
        start: float,
        end: float,
        track: str,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Records a span whose times are known. Spans of one track must nest or follow one another."""
        if self._spans >= self._limit:
            self._dropped += 1
            return
        self._spans += 1
        self._events.append(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": _microseconds(start),
                "dur": _microseconds(end) - _microseconds(start),
                "pid": self._rank,
                "tid": self._thread(track),
                "args": dict(args or {}),
            }
        )

    def add_overlapping(self, category: str, track: str, spans: Sequence[Span]) -> None:
        """Records spans that overlap, each on the lowest track `track 000`, `track 001`, … that is free: its slot."""
        for span, slot in zip(spans, assign_slots([(span.start, span.end) for span in spans]), strict=True):
            self.add(span.name, category, span.start, span.end, f"{track} {slot:03d}", span.args)

    def drain(self) -> list[Event]:
        """Hands out what was collected since the last drain and forgets it."""
        events, self._events = self._events, []
        if self._dropped:
            name = f"{self._dropped} spans not kept: more than {self._limit} between two drains"
            now = _microseconds(self._clock())
            events.append({"name": name, "ph": "i", "s": "p", "ts": now, "pid": self._rank, "tid": 0})
        self._spans = self._dropped = 0
        return events

    def _thread(self, track: str) -> int:
        if track not in self._tracks:
            thread = self._tracks[track] = zlib.crc32(track.encode()) & 0x7FFF_FFFF
            self._events.append(_metadata("thread_name", self._rank, thread, name=track))
            self._events.append(_metadata("thread_sort_index", self._rank, thread, sort_index=len(self._tracks)))
        return self._tracks[track]


class TimelineFile:
    """A Chrome trace on disk that grows; nothing but the events being appended is held in memory."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        with path.open("r+b") as file:
            self._empty = _mend(file)

    def append(self, events: Sequence[Event]) -> None:
        """Adds events in one write; the file stays one JSON array."""
        if not events:
            return
        lines = b",\n".join(json.dumps(event, separators=(",", ":")).encode() for event in events)
        with self.path.open("r+b") as file:
            file.seek(-len(_CLOSE), 2)
            file.write((b"" if self._empty else b",\n") + lines + _CLOSE)
        self._empty = False


def read_timeline(path: Path) -> list[Event]:
    """The events of a trace, a torn end left out."""
    return list(events_of(path))


def events_of(path: Path) -> Iterator[Event]:
    """The events of a trace one by one; a torn end is left out."""
    with path.open("rb") as file:
        yield from (event for event in map(_parse, file) if event is not None)


def assign_slots(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """The lowest slot that is free for each (start, end), served in order of start; slots are as few as possible."""
    slots = [0] * len(intervals)
    free: list[int] = []
    running: list[tuple[float, int]] = []
    opened = 0
    for index in sorted(range(len(intervals)), key=lambda index: (intervals[index], index)):
        start, end = intervals[index]
        while running and running[0][0] <= start:
            heappush(free, heappop(running)[1])
        if free:
            slots[index] = heappop(free)
        else:
            slots[index], opened = opened, opened + 1
        heappush(running, (end, slots[index]))
    return slots


def _mend(file: IO[bytes]) -> bool:
    """Cuts a torn end, closes the array, and says whether it is empty. Reads no more than the end of the file."""
    size = file.seek(0, 2)
    begin = max(0, size - _TAIL)
    file.seek(begin)
    tail = file.read()
    if size > len(_OPEN + _CLOSE) and tail.endswith(_CLOSE):
        return False
    end, position = 0, begin
    for line in tail.splitlines(keepends=True):
        event = _event_line(line)
        if event:
            end = position + len(event)
        position += len(line)
    file.seek(end)
    file.truncate()
    file.write(_CLOSE if end else _OPEN + _CLOSE)
    return end == 0


def _event_line(line: bytes) -> bytes:
    """The event that the line holds, without its comma; nothing when it holds none or a torn one."""
    return line.rstrip(b",\n") if _parse(line) is not None else b""


def _parse(line: bytes) -> Event | None:
    line = line.rstrip(b",\n")
    try:
        return json.loads(line) if line.startswith(b"{") else None
    except ValueError:
        return None


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> Event:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}
