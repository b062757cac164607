"""The report's panels: which metrics are drawn together, and how. Plotly figures without colours of a theme.

Every panel is data: `CHAPTERS` lists them in the order of the page, and one function draws a panel from the runs. With
one run, colour tells streams or stages apart; with several, colour tells the runs apart and the dash tells the rest.
Line colours have a contrast of at least 3:1 on white and on the dark background; the page's script sets text and grid.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import plotly.graph_objects as go

from megatron_seirenes.observe.metrics import find
from megatron_seirenes.observe.report.attack import STRONG, WINDOW, moving_mean
from megatron_seirenes.observe.report.data import Run, Series, label

COLOURS = ("#3b7dd8", "#d9730d", "#2a9d60", "#9b5de5", "#d64550", "#1b98a6", "#a07628", "#7a8290")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
TIMES = ("rollout", "judge_wait", "train", "sync", "snapshot", "evaluation")

Draw = Callable[[Sequence[Run]], go.Figure]


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure. `patterns` are metric patterns drawn as lines, unless `draw` makes the figure itself."""

    title: str
    patterns: tuple[str, ...] = ()
    note: str = ""
    unit: str = ""
    log: bool = False
    draw: Draw | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A panel with its figure, a sentence saying what is plotted, and each line in words, for screen readers."""

    title: str
    note: str
    figure: go.Figure
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure: whose, what, and its points."""

    run: str
    what: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dash: str


def draw_panel(panel: Panel, runs: Sequence[Run]) -> Drawn | None:
    """The panel drawn for these runs; None when none of them has anything to show."""
    figure = panel.draw(runs) if panel.draw is not None else _draw_lines(panel, runs)
    if not figure.data:
        return None
    note = panel.note or " ".join(metric.meaning for pattern in panel.patterns if (metric := find(pattern)) is not None)
    return Drawn(panel.title, note, figure, tuple(map(_in_words, figure.data)))


def _draw_lines(panel: Panel, runs: Sequence[Run]) -> go.Figure:
    figure = new_figure("collection step", panel.unit, log=panel.log)
    for line in _lines(panel.patterns, runs):
        add_line(figure, line, several=len(runs) > 1)
    return figure


def _lines(patterns: Sequence[str], runs: Sequence[Run]) -> Iterator[Line]:
    """One line for each run and key of the patterns."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found |= dict.fromkeys(key for run in runs for key in run.keys(pattern) if run.series(key).steps)
    order = list(found)
    for number, run in enumerate(runs):
        for index, key in enumerate(order):
            series = run.series(key)
            if series.steps:
                what = _what(key, patterns)
                yield Line(run.name, what, series.steps, series.values, *look(number, index, several=len(runs) > 1))


def _what(key: str, patterns: Sequence[str]) -> str:
    """What the line shows: the name in braces, and with several patterns also which of them."""
    name, last = label(key), key.rsplit("/", 1)[-1]
    return name if len(patterns) == 1 or name == last else f"{name} {last}"


def look(run: int, item: int, several: bool) -> tuple[str, str]:
    """Colour and dash of a line: the run's colour when there are several runs, else the item's."""
    if several:
        return COLOURS[run % len(COLOURS)], DASHES[item % len(DASHES)]
    return COLOURS[item % len(COLOURS)], DASHES[item // len(COLOURS) % len(DASHES)]


def new_figure(x_title: str, y_title: str, log: bool = False) -> go.Figure:
    """An empty figure without a template, titled axes, a legend below."""
    figure = go.Figure()
    figure.update_layout(
        template=go.layout.Template(),
        margin={"l": 60, "r": 16, "t": 28, "b": 44},
        height=350,
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.24, "yanchor": "top", "x": 0},
        xaxis={"title": {"text": x_title, "standoff": 4}},
        yaxis={"title": {"text": y_title}, "type": "log" if log else "linear", "automargin": True},
    )
    if log:
        figure.update_yaxes(exponentformat="power")
    return figure


def add_line(figure: go.Figure, line: Line, several: bool, width: float = 1.8) -> None:
    """Draws one line, if it has points; its name is escaped, since Plotly reads tags in names."""
    if not line.x:
        return
    name = f"{line.run}: {line.what}" if several else line.what
    figure.add_scatter(
        x=list(line.x),
        y=list(line.y),
        name=html.escape(name),
        mode="lines+markers" if len(line.x) < 30 else "lines",
        line={"color": line.colour, "dash": line.dash, "width": width},
        marker={"size": 4},
    )


def _in_words(trace: go.Scatter | go.Bar) -> str:
    if trace.type == "bar":
        return f"{trace.name}: " + ", ".join(f"{hours:.3g} hours" for hours in trace.x)
    return f"{html.unescape(trace.name)}: {trace.y[0]:.4g} to {trace.y[-1]:.4g} over {len(trace.y)} points"


def draw_delta(runs: Sequence[Run]) -> go.Figure:
    """attack/delta by step with its 21-step moving mean, and the strong-attack threshold."""
    figure = new_figure("collection step", "fraction")
    for number, run in enumerate(runs):
        series = run.series("attack/delta")
        if not series.steps:
            continue
        colour, _ = look(number, 0, several=True)
        add_line(figure, Line(run.name, "delta", series.steps, series.values, colour, "solid"), len(runs) > 1, 1.0)
        smooth = moving_mean(series.values, WINDOW)
        if smooth:
            line = Line(run.name, f"mean of {WINDOW}", series.steps[WINDOW - 1 :], smooth, colour, "dash")
            add_line(figure, line, len(runs) > 1, 3.0)
    if figure.data:
        figure.add_hline(y=STRONG, line={"dash": "dot", "color": "#7a8290", "width": 1})
    return figure


def draw_against(total: str, scale: float, x_title: str) -> Draw:
    """Success against the running total of `total`, divided by `scale`."""

    def draw(runs: Sequence[Run]) -> go.Figure:
        figure = new_figure(x_title, "fraction")
        for number, run in enumerate(runs):
            spent = run.running_total(total)
            for index, key in enumerate(("success/clean", "success/hinted")):
                series = run.series(key)
                x = [spent[step] / scale for step in series.steps]
                if x and x[-1] > 0:
                    line = Line(run.name, label(key), x, series.values, *look(number, index, len(runs) > 1))
                    add_line(figure, line, len(runs) > 1)
        return figure

    return draw


def draw_evaluation_against(total: str, scale: float, x_title: str) -> Draw:
    """avg@k of each benchmark against the running total of `total`, divided by `scale` (paper, Fig. 2a)."""

    def draw(runs: Sequence[Run]) -> go.Figure:
        figure = new_figure(x_title, "fraction")
        keys = dict.fromkeys(key for run in runs for key in run.keys("evaluation/{benchmark}/avg@{k}"))
        for number, run in enumerate(runs):
            spent = run.running_total(total)
            for index, key in enumerate(keys):
                series = run.series(key)
                x = [spent[step] / scale for step in series.steps]
                if x and x[-1] > 0:
                    what = key.removeprefix("evaluation/")
                    line = Line(run.name, what, x, series.values, *look(number, index, len(runs) > 1))
                    add_line(figure, line, len(runs) > 1)
        return figure

    return draw


def draw_saved(runs: Sequence[Run]) -> go.Figure:
    """The share of rollout work that retiring questions saves (paper, Fig. 4b and c, Appendix D).

    Estimated as there: work is proportional to the questions asked, so a step saves the retired share of all questions.
    """
    figure = new_figure("collection step", "fraction")
    for number, run in enumerate(runs):
        live = run.series("mastery/live_fraction")
        saved = [1 - value for value in live.values]
        mean = [total / count for count, total in enumerate(accumulate(saved), 1)]
        for index, (what, values) in enumerate((("this step", saved), ("since the start", mean)) if saved else ()):
            add_line(
                figure, Line(run.name, what, live.steps, values, *look(number, index, len(runs) > 1)), len(runs) > 1
            )
    return figure


def draw_evictions(runs: Sequence[Run]) -> go.Figure:
    """What was evicted from each stream since the run began, stale and overflowing together."""
    figure = new_figure("collection step", "stream units since the start")
    names = dict.fromkeys(label(key) for run in runs for key in run.keys("streams/{s}/evicted_stale"))
    for number, run in enumerate(runs):
        for index, name in enumerate(names):
            stale = run.running_total(f"streams/{name}/evicted_stale")
            over = run.running_total(f"streams/{name}/evicted_overflow")
            y = [stale[step] + over[step] for step in stale]
            add_line(
                figure, Line(run.name, name, list(stale), y, *look(number, index, len(runs) > 1)), several=len(runs) > 1
            )
    return figure


def draw_evaluation(runs: Sequence[Run]) -> go.Figure:
    """avg@k of each benchmark by step, with its 95 % interval where the run has one."""
    figure = new_figure("collection step", "fraction")
    keys = dict.fromkeys(key for run in runs for key in run.keys("evaluation/{benchmark}/avg@{k}"))
    for number, run in enumerate(runs):
        for index, key in enumerate(keys):
            series = run.series(key)
            if not series.steps:
                continue
            what = key.removeprefix("evaluation/")
            line = Line(run.name, what, series.steps, series.values, *look(number, index, len(runs) > 1))
            add_line(figure, line, len(runs) > 1)
            _add_interval(figure, series, run.series(f"{key}/low"), run.series(f"{key}/high"))
    return figure


def _add_interval(figure: go.Figure, middle: Series, low: Series, high: Series) -> None:
    if low.steps != middle.steps or high.steps != middle.steps:
        return
    above = [top - value for top, value in zip(high.values, middle.values, strict=True)]
    below = [value - bottom for bottom, value in zip(low.values, middle.values, strict=True)]
    figure.data[-1].error_y = {"type": "data", "array": above, "arrayminus": below, "thickness": 1}


def draw_time(runs: Sequence[Run]) -> go.Figure:
    """Where the time went: a bar a run, split by what it was spent on."""
    figure = new_figure("hours", "")
    spent = {run.name: time_split(run) for run in runs}
    parts = dict.fromkeys(part for split in spent.values() for part in split)
    for index, part in enumerate(parts):
        figure.add_bar(
            y=[html.escape(name) for name in spent],
            x=[split.get(part, 0.0) / 3600 for split in spent.values()],
            name=part,
            orientation="h",
            marker={"color": COLOURS[index % len(COLOURS)]},
        )
    figure.update_layout(
        barmode="stack",
        hovermode="closest",
        height=160 + 44 * len(runs),
        yaxis={"automargin": True, "type": "category", "autorange": "reversed"},
        legend={"traceorder": "normal", "y": -0.5},
    )
    return figure


def time_split(run: Run) -> Mapping[str, float]:
    """Seconds of the whole run by part of a step; `other` is what no part accounts for. Parts do not overlap."""
    split = {part: sum(run.series(f"time/{part}").values) for part in TIMES}
    split["rollout"] -= split["judge_wait"]
    other = sum(run.series("time/step").values) - sum(split.values())
    return {part: seconds for part, seconds in (split | {"other": max(other, 0.0)}).items() if seconds > 0}
