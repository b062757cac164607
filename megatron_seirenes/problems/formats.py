"""The published formats of question files, as a table: which fields of a row are the question, the answer, the id.

A new format is a new row of FORMATS. A field is a function of the raw row; it raises KeyError for a missing column and
ValueError for content it cannot use, and the reader turns either into a fault that names file and row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from megatron_seirenes.problems.gold import (
    after_marker,
    last_boxed,
    letter,
    lettered,
    number,
    without_dollars,
    without_wrapping,
)

Row = Mapping[str, Any]
Field = Callable[[Row], Any]

# The instruction that DAPO-Math and its AIME file put around each question; it asks for an answer outside a box.
DAPO_WRAPPING = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n",
    '\n\nRemember to put your answer on its own line after "Answer:".',
)


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table.

    `id` gives the row's own id or None (then the row's number is used). `meta` are columns that are kept as they are,
    where present. `repeats` says that the file repeats each question on purpose: only the first of equal ids is kept.
    """

    name: str
    question: Field
    answer: Field
    id: Field = lambda row: None
    meta: tuple[str, ...] = ()
    repeats: bool = False


def column(*names: str) -> Field:
    """The first of these columns that the row has; an empty text where it is null. Raises KeyError without any."""

    def field(row: Row) -> Any:
        for name in names:
            if name in row:
                return "" if row[name] is None else row[name]
        raise KeyError(" or ".join(names))

    return field


def optional(*names: str) -> Field:
    """The first of these columns that the row has and that is not null, or None."""
    return lambda row: next((row[name] for name in names if row.get(name) is not None), None)


def columns_format(columns: Mapping[str, str]) -> Format:
    """The format of a file whose columns the user named (`id`, `question`, `answer`)."""
    return Format(
        "columns",
        question=column(columns.get("question", "question")),
        answer=column(columns.get("answer", "answer")),
        id=column(columns["id"]) if "id" in columns else optional("id"),
    )


def _verl_question(row: Row) -> str:
    extra = row.get("extra_info") or {}
    if extra.get("raw_problem"):
        return str(extra["raw_problem"])
    users = [message["content"] for message in row["prompt"] if message["role"] == "user"]
    if not users:
        raise ValueError("the prompt has no user message")
    return without_wrapping(users[-1], (DAPO_WRAPPING,))


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("plain", question=column("question", "problem"), answer=column("answer"), id=optional("id")),
        Format("gsm8k", question=column("question"), answer=lambda row: after_marker(row["answer"])),
        Format(
            "svamp",
            question=lambda row: f"{row['Body'].strip()} {row['Question'].strip()}",
            answer=lambda row: number(row["Answer"]),
            id=optional("ID"),
            meta=("Type",),
        ),
        Format(
            "minerva_math",
            question=column("problem"),
            answer=lambda row: last_boxed(row["solution"]),
            id=optional("idx"),
            meta=("type",),
        ),
        Format(
            "aime",
            question=column("problem", "question"),
            answer=lambda row: number(column("answer")(row)),
            id=optional("id", "problem_idx"),
        ),
        Format(
            "imo_answerbench",
            question=column("Problem"),
            answer=lambda row: without_dollars(row["Short Answer"]),
            id=optional("Problem ID"),
            meta=("Category", "Subcategory", "Source"),
        ),
        Format(
            "mmlu",
            question=lambda row: f"{row['question'].strip()}\n\n{lettered(row['choices'])}",
            answer=lambda row: letter(row["answer"]),
            meta=("type", "subject", "choices"),
        ),
        Format(
            "verl",
            question=_verl_question,
            answer=lambda row: row["reward_model"]["ground_truth"],
            id=lambda row: (row.get("extra_info") or {}).get("index"),
            meta=("data_source",),
            repeats=True,
        ),
    )
}
