"""Figures made from timelines: idle shares by step, what each stage adds, and the last step's unfinished rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from megatron_seirenes.observe.report.data import Run
from megatron_seirenes.observe.report.figures import Line, add_line, look, new_figure


def draw_idle(runs: Sequence[Run]) -> go.Figure:
    """Share of each step in which the engine, or the trainer, had nothing to do."""
    figure = new_figure("collection step of the timeline", "fraction")
    for number, run in enumerate(runs):
        steps = run.timeline.steps if run.timeline is not None else ()
        idle = {"engine": [step.engine_idle for step in steps], "trainer": [step.trainer_idle for step in steps]}
        for index, (what, values) in enumerate(idle.items() if steps else ()):
            colour, dash = look(number, index, several=len(runs) > 1)
            x = range(1, len(steps) + 1)
            add_line(figure, Line(run.name, what, x, values, colour, dash), several=len(runs) > 1)
    return figure


def draw_added(runs: Sequence[Run]) -> go.Figure:
    """Seconds that each stage adds to a collection after the stages before it, and judging after all of them."""
    figure = new_figure("collection step of the timeline", "seconds")
    for number, run in enumerate(runs):
        if run.timeline is None:
            continue
        steps = run.timeline.steps
        added = {stage: [step.added[stage] for step in steps] for stage in run.timeline.stages}
        for index, (what, values) in enumerate({**added, "judging": [step.judging_alone for step in steps]}.items()):
            colour, dash = look(number, index, several=len(runs) > 1)
            x = range(1, len(steps) + 1)
            add_line(figure, Line(run.name, what, x, values, colour, dash), several=len(runs) > 1)
    return figure


def draw_running(runs: Sequence[Run]) -> go.Figure:
    """Unfinished rollouts of each stage while the last step of the timeline was collected."""
    figure = new_figure("seconds since the collection began", "rollouts")
    for number, run in enumerate(runs):
        if run.timeline is None:
            continue
        for index, stage in enumerate(run.timeline.stages):
            colour, dash = look(number, index, several=len(runs) > 1)
            line = Line(run.name, stage, run.timeline.moments, run.timeline.running[stage], colour, dash)
            add_line(figure, line, several=len(runs) > 1)
    return figure
