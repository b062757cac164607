"""One bundle at the terminal: the question, a clean answer, the first hint and an answer under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from megatron_seirenes.observe.plain_text import printable, shorten
from megatron_seirenes.observe.records import Record

SHOWN = 400
"""Characters shown of each text."""


def bundle_view(records: Sequence[Record]) -> Text:
    """Lines for a terminal. Escape sequences in what a model wrote are not passed on."""
    return Text("\n").join(_lines(records))


def _lines(records: Sequence[Record]) -> Iterator[Text]:
    first = records[0]
    yield _part(f"question {first['problem_id']}, right answer {first['gold']}", first["question"])
    clean = next((record for record in records if record["parent"] is None and record["judged"]), None)
    hint = next((record for record in records if record["parent"] is None and not record["judged"]), None)
    under = next((record for record in records if hint is not None and record["parent"] == hint["id"]), None)
    for record in (clean, hint, under):
        if record is not None:
            yield _part(_facts(record), record["response"])


def _facts(record: Record) -> str:
    verdict = {True: "correct", False: "wrong", None: ""}[record["correct"]]
    advantage = "" if record["advantage"] is None else f"advantage {record['advantage']:+.3f}"
    refused = "" if record["refused"] is None else f"refused: {record['refused']}"
    facts = (verdict, refused, advantage, f"{record['response_tokens']:,} tokens")
    return f"{record['stage']}: {', '.join(fact for fact in facts if fact)}"


def _part(heading: str, text: str) -> Text:
    return Text.assemble((printable(shorten(heading, SHOWN)), "bold"), "\n", printable(shorten(text, SHOWN)))
