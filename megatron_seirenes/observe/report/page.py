"""The page: chapters of figures, tables, bundles and configuration in one HTML file that asks the network for nothing.

The drawing library and the renderer of mathematics are packed in once. A content security policy forbids every request
and every script but those of this page (named by their digests), so that a text that escaped the escaping would still
not run. The same runs give the same page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from megatron_seirenes.errors import MissingComponentError, UsageError
from megatron_seirenes.observe.report.benchmarks import benchmark_tables
from megatron_seirenes.observe.report.browser import browser
from megatron_seirenes.observe.report.bundles import BUNDLES, RunBundles, find_bundles, for_page
from megatron_seirenes.observe.report.data import Run, load_runs
from megatron_seirenes.observe.report.markup import Markup, element, join, text
from megatron_seirenes.observe.report.tables import (
    attack_table,
    configuration,
    differences,
    evaluation_table,
    overview,
    timeline_table,
)

if TYPE_CHECKING:
    from megatron_seirenes.observe.report.figures import Drawn


Section = tuple[str, str, Markup]
"""Anchor, title and content."""

OWN_SCRIPTS = ("page.js", "mathematics.js", "browser.js")
"""The page's own scripts, in the order they run."""


def write_report(run_dirs: Sequence[Path], out: Path | None = None, bundles: int = BUNDLES) -> Path:
    """Writes the report of these runs and returns its path (default: `report.html` in the first run's directory).

    `bundles` is the number of bundles a run whose texts are packed in.

    Raises UsageError without a run, DataError naming a folder or file that cannot be read, MissingComponentError
    without plotly.
    """
    if not run_dirs:
        raise UsageError("a report needs at least one run directory")
    out = out if out is not None else run_dirs[0] / "report.html"
    page = render(load_runs(run_dirs), bundles)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(out)
    return out


def render(runs: Sequence[Run], bundles: int = BUNDLES) -> str:
    """The whole page."""
    scripts = [_plotly(), _read("assets/temml.min.js"), *map(_read, OWN_SCRIPTS)]
    found = [one for run in runs if (one := find_bundles(run, bundles)).entries]
    sections, figures = _sections(runs, found)
    title = "Seirênes: " + ", ".join(run.name for run in runs)
    head = join(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(_policy(scripts))}">'),
            element("title", text(title)),
            Markup(f"<style>{_read('page.css')}</style>"),
        ]
    )
    body = join(
        [
            element("header", element("h1", text(title)), _navigation(sections)),
            element("main", *(_section(*section) for section in sections)),
            _data("figures", figures),
            *([_data("bundles", [for_page(one) for one in found])] if found else []),
            *(Markup(f"<script>{script}</script>") for script in scripts),
        ]
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


def json_for_script(value: Any) -> Markup:
    """JSON that can stand inside a script element: nothing in it can end the element or open a comment."""
    written = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _data(name: str, value: Any) -> Markup:
    return Markup(f'<script type="application/json" id="{name}">{json_for_script(value)}</script>')


def _sections(runs: Sequence[Run], found: Sequence[RunBundles]) -> tuple[list[Section], list[dict[str, Any]]]:
    """Anchor, title and content of each section, and the figures that the content refers to by number."""
    from megatron_seirenes.observe.report.chapters import CHAPTERS
    from megatron_seirenes.observe.report.figures import draw_panel

    evaluations = {run.name: run.evaluation for run in runs if run.evaluation is not None}
    beside = {
        "evaluation": (benchmark_tables(evaluations), evaluation_table(runs)),
        "attack": (attack_table(runs),),
        "time": (timeline_table(runs),),
    }
    sections = [("overview", "Overview", overview(runs))]
    figures: list[dict[str, Any]] = []
    for chapter in CHAPTERS:
        panels = [drawn for panel in chapter.panels if (drawn := draw_panel(panel, runs)) is not None]
        shown = [_figure(drawn, len(figures) + number) for number, drawn in enumerate(panels)]
        figures += [json.loads(drawn.figure.to_json()) for drawn in panels]
        tables = [found for found in beside.get(chapter.anchor, ()) if found]
        content = [*tables, *([element("div", *shown, class_="panels")] if shown else [])]
        if content:
            sections.append((chapter.anchor, chapter.title, join(content)))
    return [*sections, *_readings(runs, found)], figures


def _readings(runs: Sequence[Run], found: Sequence[RunBundles]) -> list[Section]:
    """The sections to read rather than to look at: bundles and configuration."""
    sections = [("bundles-of-runs", "Bundles", browser(found))] if found else []
    differing = differences(runs)
    settings = [*([differing] if differing else []), *(configuration(run) for run in runs if run.config)]
    if settings:
        sections.append(("configuration", "Configuration", join(settings)))
    return sections


def _figure(drawn: Drawn, number: int) -> Markup:
    caption = element("figcaption", element("h3", text(drawn.title)), element("p", text(drawn.note)))
    words = f"{drawn.title}. {'; '.join(drawn.lines)}"
    plot = element("div", class_="plot", role="group", aria_label=words, data_figure=str(number))
    return element("figure", caption, plot)


def _section(anchor: str, title: str, content: Markup) -> Markup:
    return element("section", element("h2", text(title)), content, id=anchor)


def _navigation(sections: Sequence[Section]) -> Markup:
    links = (element("li", element("a", text(title), href=f"#{anchor}")) for anchor, title, _ in sections)
    return element("nav", element("ul", *links), aria_label="Sections")


def _policy(scripts: Sequence[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _read(name: str) -> str:
    return _line_feeds(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingComponentError(
            "a report needs the package plotly, which is not installed: pip install plotly"
        ) from error
    return _line_feeds(get_plotlyjs())


def _line_feeds(script: str) -> str:
    """Browsers read a carriage return in a script as a line feed, and take the digest of what they read."""
    return script.replace("\r\n", "\n").replace("\r", "\n")
