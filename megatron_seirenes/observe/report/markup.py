"""HTML from text, so that nothing a model, a file or a user wrote is ever read as markup.

`Markup` is text that is already HTML; everything else is escaped when it enters an element. Characters that HTML
cannot hold (control characters, lone surrogates) become U+FFFD.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NewType

from megatron_seirenes.observe.plain_text import printable

Markup = NewType("Markup", str)


def text(value: object) -> Markup:
    """Any value as text, escaped for element content and for quoted attributes."""
    return Markup(html.escape(printable(str(value)), quote=True))


def element(tag: str, *content: Markup, **attributes: str) -> Markup:
    """An element. Attribute values are escaped; `class_` stands for `class`, other underscores for hyphens."""
    written = "".join(f' {_attribute(name)}="{text(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{written}>{join(content)}</{tag}>")


def join(parts: Iterable[Markup], separator: str = "") -> Markup:
    """Pieces of markup one after the other."""
    return Markup(separator.join(parts))


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table of text; the first cell of a row is its heading. It scrolls sideways in a narrow window."""
    head = element("tr", *(element("th", text(heading), scope="col") for heading in headings))
    body = join(
        element("tr", element("th", text(row[0]), scope="row"), *(element("td", text(cell)) for cell in row[1:]))
        for row in rows
    )
    content = (element("caption", text(caption)), element("thead", head), element("tbody", body))
    return element("div", element("table", *content), class_="scroll", tabindex="0", role="region", aria_label=caption)


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
