"""What a person at the terminal or reading a log sees of a running run.

Three consoles behind one protocol: `LiveConsole` redraws a table in place, `PlainConsole` prints one line a step (for
SLURM logs and pipes), `SilentConsole` prints nothing (every rank but the first). None keeps a thread: the live table is
redrawn when something is reported, at most `REDRAWS` times a second, and looks for pressed keys then: `b` shows the
last bundle, and hides it again. Nothing here decides anything about the run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from rich.console import Console as RichConsole
from rich.console import Group as Stack
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from megatron_seirenes.config.schema import Budget
from megatron_seirenes.games.game import Stream
from megatron_seirenes.observe.bundle_view import bundle_view
from megatron_seirenes.observe.forecast import Forecast, Spent
from megatron_seirenes.observe.keys import Keys
from megatron_seirenes.observe.metrics import Value
from megatron_seirenes.observe.records import Record

Mode = Literal["auto", "live", "plain", "none"]
Row = Mapping[str, Value]

REDRAWS = 4
EVENTS_SHOWN = 5


class Console(Protocol):
    """Where a run tells people how it goes."""

    def begin_step(self, step: int) -> None:
        """A collection step starts."""

    def phase(self, name: str) -> None:
        """What the run is doing now: `rollout`, `judging`, `training clean`, `sync`, `snapshot`, …"""

    def progress(self, done: int, total: int, tokens: int) -> None:
        """Rollouts finished of those known so far in this step, and tokens drawn in it."""

    def bundle(self, records: Sequence[Record]) -> None:
        """The records of the bundle that was collected last, for whoever asks to see it."""

    def end_step(self, row: Row) -> None:
        """A collection step has ended with this row of metrics."""

    def event(self, text: str) -> None:
        """Something worth a line: a snapshot, a signal, a value that is not finite."""

    def close(self) -> None:
        """Leaves the terminal as it was."""


def make_console(
    mode: Mode,
    streams: Sequence[Stream],
    total_steps: int,
    budget: Budget | None = None,
    before: Spent | None = None,
    rank: int = 0,
    terminal: RichConsole | None = None,
) -> Console:
    """The console of this rank; `auto` is live on a terminal and plain elsewhere. Only rank 0 prints.

    `before` is what a resumed run had used of its budget already.
    """
    if mode == "none" or rank != 0:
        return SilentConsole()
    terminal = terminal or RichConsole()
    forecast = Forecast(total_steps, budget, before)
    if mode == "live" or (mode == "auto" and terminal.is_terminal):
        return LiveConsole(streams, total_steps, forecast, terminal)
    return PlainConsole(streams, total_steps, forecast, terminal)


class SilentConsole:
    """Prints nothing."""

    def begin_step(self, step: int) -> None:
        pass

    def phase(self, name: str) -> None:
        pass

    def progress(self, done: int, total: int, tokens: int) -> None:
        pass

    def bundle(self, records: Sequence[Record]) -> None:
        pass

    def end_step(self, row: Row) -> None:
        pass

    def event(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class PlainConsole(SilentConsole):
    """One line a step and one an event."""

    def __init__(self, streams: Sequence[Stream], total_steps: int, forecast: Forecast, terminal: RichConsole):
        self._streams = streams
        self._total_steps = total_steps
        self._forecast = forecast
        self._terminal = terminal

    def end_step(self, row: Row) -> None:
        self._forecast.observe(row)
        queues = " ".join(
            f"{stream.name} {number(row, f'streams/{stream.name}/pending')}/{stream.capacity}"
            + f" +{number(row, f'streams/{stream.name}/updates')}"
            for stream in self._streams
        )
        self._line(
            f"step {row['step']}/{self._total_steps} | clean {number(row, 'success/clean')}"
            f" hinted {number(row, 'success/hinted')} delta {number(row, 'attack/delta')} | {queues}"
            f" | {number(row, 'tokens/generated')} tokens, {number(row, 'throughput/generated')}/s"
            f" | {duration(row.get('time/step'))} a step, left {duration(self._forecast.seconds_left())}"
        )

    def event(self, text: str) -> None:
        self._line(text)

    def _line(self, text: str) -> None:
        self._terminal.print(text, soft_wrap=True, markup=False, highlight=False, emoji=False)
        self._terminal.file.flush()


class LiveConsole:
    """A table that is redrawn in place; other output of the process scrolls by above it."""

    def __init__(
        self,
        streams: Sequence[Stream],
        total_steps: int,
        forecast: Forecast,
        terminal: RichConsole,
        clock: Callable[[], float] = time.monotonic,
        keys: Keys | None = None,
    ):
        self._streams = streams
        self._total_steps = total_steps
        self._forecast = forecast
        self._clock = clock
        self._step, self._phase = 0, "starting"
        self._done, self._total, self._tokens = 0, 0, 0
        self._row: Row = {}
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._drawn = -1.0
        self._keys = keys or Keys()
        self._bundle: Sequence[Record] = ()
        self._bundle_shown = False
        self._live = Live(console=terminal, auto_refresh=False, transient=False)
        self._live.start()

    def begin_step(self, step: int) -> None:
        self._step, self._done, self._total, self._tokens = step, 0, 0, 0
        self._draw(at_once=True)

    def phase(self, name: str) -> None:
        self._phase = name
        self._draw(at_once=True)

    def progress(self, done: int, total: int, tokens: int) -> None:
        self._done, self._total, self._tokens = done, total, tokens
        self._draw()

    def bundle(self, records: Sequence[Record]) -> None:
        self._bundle = records

    def end_step(self, row: Row) -> None:
        self._row = row
        self._forecast.observe(row)
        self._draw(at_once=True)

    def event(self, text: str) -> None:
        self._events.append(text)
        self._draw(at_once=True)

    def close(self) -> None:
        self._draw(at_once=True)
        self._live.stop()
        self._keys.close()

    def _draw(self, at_once: bool = False) -> None:
        now = self._clock()
        if not at_once and now - self._drawn < 1 / REDRAWS:
            return
        self._drawn = now
        if self._keys.pressed().count("b") % 2:
            self._bundle_shown = not self._bundle_shown
        self._live.update(self._view(), refresh=True)

    def _view(self) -> Stack:
        events = (Text(f"  {text}", style="dim") for text in self._events)
        bundle = [bundle_view(self._bundle)] if self._bundle_shown and self._bundle else []
        return Stack(self._head(), self._progress(), self._queues(), *events, *bundle)

    def _head(self) -> Table:
        table = Table.grid(padding=(0, 3))
        row = self._row
        table.add_row(
            _pair("step", f"{self._step}/{self._total_steps}"),
            _pair("left", duration(self._forecast.seconds_left())),
            _pair("clean", number(row, "success/clean")),
            _pair("hinted", number(row, "success/hinted")),
            _pair("delta", number(row, "attack/delta")),
            _pair("tokens/s", number(row, "throughput/generated")),
        )
        return table

    def _progress(self) -> Table:
        table = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=max(self._total, 1), completed=self._done, width=32)
        counts = f"{self._done}/{self._total} rollouts, {self._tokens:,} tokens"
        table.add_row(Text(f"{self._phase:<18}"), bar, Text(counts))
        return table

    def _queues(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("stream", "pending", "flush", "capacity", "", "updates", "lag", "stale", "entropy"):
            table.add_column(heading, justify="left" if heading in ("stream", "") else "right")
        for stream in self._streams:
            key = f"streams/{stream.name}"
            pending = self._row.get(f"{key}/pending") or 0
            table.add_row(
                stream.name,
                f"{pending:g}",
                str(stream.flush),
                str(stream.capacity),
                ProgressBar(total=stream.capacity, completed=pending, width=16),
                number(self._row, f"{key}/updates_total"),
                number(self._row, f"{key}/lag_max"),
                number(self._row, f"{key}/evicted_stale"),
                number(self._row, f"entropy/{stream.name}"),
            )
        return table


def number(row: Row, key: str) -> str:
    """A value as people read it: integers whole, fractions to three digits, `-` where there is none."""
    value = row.get(key)
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 10 else f"{value:.3f}"


def duration(seconds: float | None) -> str:
    """`4.2s`, `3m12s`, `5h07m`, or `-` when it is not known."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def _pair(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, "bold"))
