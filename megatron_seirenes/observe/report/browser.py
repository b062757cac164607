"""The bundle browser's markup: a form of filters, a list and a place for one bundle. Its script fills all three."""

from __future__ import annotations

from collections.abc import Sequence

from megatron_seirenes.observe.report.bundles import RunBundles
from megatron_seirenes.observe.report.markup import Markup, element, join, text

VERDICTS = (
    ("all", "any"),
    ("misled", "a hint misled: fewer correct under it"),
    ("held", "no hint misled"),
    ("refused", "a hint was refused"),
    ("solved", "clean answers all correct"),
    ("mixed", "clean answers partly correct"),
    ("failed", "no clean answer correct"),
)
ORDERS = (
    ("step", "step"),
    ("gap", "largest loss under a hint first"),
    ("reward", "highest reward first"),
    ("question", "question"),
)


def browser(found: Sequence[RunBundles]) -> Markup:
    """The section's content; the page's data holds the bundles themselves."""
    note = element(
        "p",
        text(
            "Every question of every recorded step. The texts of some are in this page, the others are read from the "
            "run's rollouts folder once you have opened it here. Nothing leaves your machine."
        ),
    )
    return join([note, _filters(found), _list(), _one()])


def _filters(found: Sequence[RunBundles]) -> Markup:
    runs = [(str(number), one.run.name) for number, one in enumerate(found)]
    folder = Markup('<input type="file" id="bundle-folder" multiple webkitdirectory>')
    fields = [
        _select("bundle-run", "Run", runs),
        _input("bundle-question", "Question or its words", type="search", autocomplete="off"),
        _input("bundle-from", "From step", type="number", min="0"),
        _input("bundle-to", "To step", type="number", min="0"),
        _select("bundle-verdict", "Verdicts", VERDICTS),
        _input("bundle-least", "Reward at least", type="number", step="any"),
        _input("bundle-most", "Reward at most", type="number", step="any"),
        _select("bundle-order", "Order", ORDERS),
        _check("bundle-packed", "Only those in this page"),
        _check("bundle-source", "Mathematics as written"),
        element("p", _label("bundle-folder", "Rollouts folder of the run"), folder, class_="field wide"),
    ]
    about = "Reward: of any of its hints, or of the clean answers where there are no hints."
    button = Markup('<button type="button" id="bundle-reset">Clear the filters</button>')
    return element(
        "form", *fields, button, element("p", text(about), class_="facts"), id="bundle-filters", aria_label="Filters"
    )


def _list() -> Markup:
    headings = ("Step", "Question", "Clean", "Under each hint", "Reward", "Text")
    head = element("thead", element("tr", *(element("th", text(heading), scope="col") for heading in headings)))
    caption = element("caption", text("Bundles: arrow keys move, Enter opens, Escape comes back"))
    body = Markup('<tbody id="bundle-rows"></tbody>')
    table = element("table", caption, head, body, class_="bundles")
    pages = join(
        [
            Markup('<button type="button" id="bundle-previous">Previous</button>'),
            Markup('<span id="bundle-page"></span>'),
            Markup('<button type="button" id="bundle-next">Next</button>'),
        ]
    )
    return join(
        [
            Markup('<p id="bundle-count" role="status"></p>'),
            element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Bundles"),
            element("p", pages, class_="pages"),
        ]
    )


def _one() -> Markup:
    return Markup('<article id="bundle" aria-labelledby="bundle-title" hidden></article>')


def _label(target: str, words: str) -> Markup:
    return element("label", text(words), for_=target)


def _input(name: str, words: str, **attributes: str) -> Markup:
    written = "".join(f' {key}="{text(value)}"' for key, value in attributes.items())
    return element("p", _label(name, words), Markup(f'<input id="{text(name)}"{written}>'), class_="field")


def _check(name: str, words: str) -> Markup:
    return element("p", Markup(f'<input type="checkbox" id="{text(name)}">'), _label(name, words), class_="field check")


def _select(name: str, words: str, options: Sequence[tuple[str, str]]) -> Markup:
    shown = (element("option", text(label), value=value) for value, label in options)
    return element("p", _label(name, words), element("select", *shown, id=name), class_="field")
