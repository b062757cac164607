"""The page: chapters of figures, tables, samples and configuration in one HTML file that asks the network for nothing.

The drawing library is packed in once. A content security policy forbids every request and every script but the two of
this page (named by their digests), so that a text that escaped the escaping would still not run. The same runs give the
same page.
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
from megatron_seirenes.observe.report.data import Run, load_runs
from megatron_seirenes.observe.report.markup import Markup, element, join, text
from megatron_seirenes.observe.report.samples import choose_samples
from megatron_seirenes.observe.report.tables import (
    attack_table,
    configuration,
    differences,
    evaluation_table,
    overview,
    samples,
)

if TYPE_CHECKING:
    from megatron_seirenes.observe.report.figures import Drawn


def write_report(run_dirs: Sequence[Path], out: Path | None = None) -> Path:
    """Writes the report of these runs and returns its path (default: `report.html` in the first run's directory).

    Raises UsageError without a run, DataError naming a folder or file that cannot be read, MissingComponentError
    without plotly.
    """
    if not run_dirs:
        raise UsageError("a report needs at least one run directory")
    out = out if out is not None else run_dirs[0] / "report.html"
    page = render(load_runs(run_dirs))
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(out)
    return out


def render(runs: Sequence[Run]) -> str:
    """The whole page."""
    library = _plotly()
    sections, figures = _sections(runs)
    script = files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    title = "Seirênes: " + ", ".join(run.name for run in runs)
    head = join(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{text(_policy(library, script))}">'),
            element("title", text(title)),
            Markup(f"<style>{style}</style>"),
        ]
    )
    body = join(
        [
            element("header", element("h1", text(title)), _navigation(sections)),
            element("main", *(_section(*section) for section in sections)),
            Markup(f'<script type="application/json" id="figures">{json_for_script(figures)}</script>'),
            Markup(f"<script>{library}</script>"),
            Markup(f"<script>{script}</script>"),
        ]
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


def json_for_script(value: Any) -> Markup:
    """JSON that can stand inside a script element: nothing in it can end the element or open a comment."""
    written = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _sections(runs: Sequence[Run]) -> tuple[list[tuple[str, str, Markup]], list[dict[str, Any]]]:
    """Anchor, title and content of each section, and the figures that the content refers to by number."""
    from megatron_seirenes.observe.report.chapters import CHAPTERS
    from megatron_seirenes.observe.report.figures import draw_panel

    beside = {"evaluation": evaluation_table(runs), "attack": attack_table(runs)}
    sections = [("overview", "Overview", overview(runs))]
    figures: list[dict[str, Any]] = []
    for chapter in CHAPTERS:
        panels = [drawn for panel in chapter.panels if (drawn := draw_panel(panel, runs)) is not None]
        shown = [_figure(drawn, len(figures) + number) for number, drawn in enumerate(panels)]
        figures += [json.loads(drawn.figure.to_json()) for drawn in panels]
        tables = beside.get(chapter.anchor)
        content = [*([tables] if tables else []), *([element("div", *shown, class_="panels")] if shown else [])]
        if content:
            sections.append((chapter.anchor, chapter.title, join(content)))
    return [*sections, *_readings(runs)], figures


def _readings(runs: Sequence[Run]) -> list[tuple[str, str, Markup]]:
    """The sections to read rather than to look at: samples and configuration."""
    sections = []
    read = [(run, choose_samples(run.record_files())) for run in runs]
    shown = [element("h3", text(run.name)) + samples(bundles) for run, bundles in read if bundles]
    if shown:
        note = element("p", text("From the last and the first recorded step, the questions whose hints misled most."))
        sections.append(("samples", "Samples", join([note, *map(Markup, shown)])))
    differing = differences(runs)
    settings = [*([differing] if differing else []), *(configuration(run) for run in runs if run.config)]
    if settings:
        sections.append(("configuration", "Configuration", join(settings)))
    return sections


def _figure(drawn: Drawn, number: int) -> Markup:
    caption = element("figcaption", element("h3", text(drawn.title)), element("p", text(drawn.note)))
    words = f"{drawn.title}. {'; '.join(drawn.lines)}"
    plot = element("div", class_="plot", role="img", aria_label=words, data_figure=str(number))
    return element("figure", caption, plot)


def _section(anchor: str, title: str, content: Markup) -> Markup:
    return element("section", element("h2", text(title)), content, id=anchor)


def _navigation(sections: Sequence[tuple[str, str, Markup]]) -> Markup:
    links = (element("li", element("a", text(title), href=f"#{anchor}")) for anchor, title, _ in sections)
    return element("nav", element("ul", *links), aria_label="Sections")


def _policy(*scripts: str) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingComponentError(
            "a report needs the package plotly, which is not installed: pip install plotly"
        ) from error
    # Browsers read a carriage return in a script as a line feed, and take the digest of what they read.
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")
