"""The published formats of question files, as a table: which fields of a row are the question, the answer, the id.

A new format is a new row of FORMATS. A field is a function of the raw row; it raises KeyError for a missing column and
ValueError for content it cannot use, and the reader turns either into a fault that names file and row. Rows that a data
set holds on purpose but that no verifier can judge (proofs, questions about images) are left out by `leaves_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from megatron_seirenes.problems.gold import (
    after_marker,
    answer_list,
    choice_key,
    last_boxed,
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
DECLARED = ("id", "question", "answer", "choices", "distractor")


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table.

    `id` gives the row's own id or None (then the row's number is used). `meta` are columns that are kept as they are,
    where present; `distractor` is a text that may stand beside the question, kept under that name. `repeats` says that
    the file repeats each question on purpose: only the first of equal ids is kept. `leaves_out` gives the reason for
    which a sound row is no question for us.
    """

    name: str
    question: Field
    answer: Field
    id: Field = lambda row: None
    meta: tuple[str, ...] = ()
    distractor: Field = lambda row: None
    repeats: bool = False
    leaves_out: Callable[[Row], str | None] = lambda row: None


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
    """The format of a file whose columns the user named; with `choices` the answer is an index or a letter."""
    question = column(columns.get("question", "question"))
    answer = column(columns.get("answer", "answer"))
    if "choices" in columns:
        choices = column(columns["choices"])
        question, answer = _with_choices(question, choices), _key_of(answer)
    return Format(
        "columns",
        question=question,
        answer=answer,
        id=column(columns["id"]) if "id" in columns else optional("id"),
        distractor=column(columns["distractor"]) if "distractor" in columns else lambda row: None,
    )


def _with_choices(question: Field, choices: Field) -> Field:
    return lambda row: f"{question(row).strip()}\n\n{lettered(choices(row))}"


def _key_of(answer: Field) -> Field:
    return lambda row: choice_key(answer(row))


def _given_or_boxed(row: Row) -> Any:
    """The answer column, or the last box of the solution where a publication has none."""
    given = optional("answer", "Answer")(row)
    return number(last_boxed(column("solution", "Solution")(row)) if given is None else given)


def _verl_question(row: Row) -> str:
    extra = row.get("extra_info") or {}
    if extra.get("raw_problem"):
        return str(extra["raw_problem"])
    if isinstance(row["prompt"], str):
        return without_wrapping(row["prompt"], (DAPO_WRAPPING,))
    users = [message["content"] for message in row["prompt"] if message["role"] == "user"]
    if not users:
        raise ValueError("the prompt has no user message")
    return without_wrapping(users[-1], (DAPO_WRAPPING,))


def _olympiad_question(row: Row) -> str:
    context = str(row.get("context") or "").strip()
    return f"{context}\n\n{row['question'].strip()}" if context else row["question"]


def _olympiad_leaves_out(row: Row) -> str | None:
    if row.get("modality") == "Multimodal" or row.get("images") or row.get("image_1"):
        return "it is about an image"
    return None if row.get("final_answer") else "it is a proof, without a final answer"


def _openr1_leaves_out(row: Row) -> str | None:
    is_proof = row.get("question_type") == "proof" or str(row.get("answer")).strip().lower() == "proof"
    return "it is a proof" if is_proof else None


def _open_book(row: Row) -> tuple[str, list[str], list[str]]:
    """Stem, choice texts and their labels, of the hub's flat columns or of the original nested ones."""
    stem, choices = row.get("question_stem"), row.get("choices")
    if stem is None:
        stem, choices = row["question"]["stem"], row["question"]["choices"]
    if isinstance(choices, Mapping):
        return str(stem), list(choices["text"]), list(choices["label"])
    if choices is None:
        raise KeyError("choices")
    return str(stem), [choice["text"] for choice in choices], [choice["label"] for choice in choices]


def _open_book_question(row: Row) -> str:
    stem, texts, labels = _open_book(row)
    return f"{stem.strip()}\n\n{lettered(texts, labels)}"


def _open_book_answer(row: Row) -> str:
    _, _, labels = _open_book(row)
    if row["answerKey"] not in labels:
        raise ValueError(f"answerKey {row['answerKey']!r} is none of the labels {', '.join(map(str, labels))}")
    return row["answerKey"]


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            "plain",
            question=column("question", "problem"),
            answer=column("answer"),
            id=optional("id"),
            meta=("provenance",),
            distractor=optional("distractor"),
        ),
        Format("gsm8k", question=column("question"), answer=lambda row: after_marker(row["answer"])),
        Format(
            "svamp",
            question=lambda row: f"{row['Body'].strip()} {row['Question'].strip()}",
            answer=lambda row: number(row["Answer"]),
            id=optional("ID"),
            meta=("Type",),
        ),
        Format(
            "math",
            question=column("problem"),
            answer=_given_or_boxed,
            id=optional("unique_id", "id"),
            meta=("level", "type", "subject"),
        ),
        Format(
            "math_perturb",
            question=column("problem"),
            answer=lambda row: number(column("answer")(row)),
            id=optional("problem_id"),
            meta=("level", "type", "original_split"),
        ),
        Format(
            "minerva_math",
            question=column("problem", "question"),
            answer=_given_or_boxed,
            id=optional("idx", "id"),
            meta=("type",),
        ),
        Format(
            "aime",
            question=column("problem", "question", "Problem"),
            answer=_given_or_boxed,
            id=optional("id", "ID", "problem_idx", "unique_id"),
            meta=("year", "url"),
        ),
        Format(
            "amc",
            question=column("problem", "question"),
            answer=lambda row: number(column("answer")(row)),
            id=optional("id", "unique_id"),
            meta=("url",),
        ),
        Format(
            "hmmt",
            question=column("problem"),
            answer=lambda row: without_dollars(str(column("answer")(row))),
            id=optional("problem_idx"),
            meta=("problem_type",),
        ),
        Format(
            "olympiadbench",
            question=_olympiad_question,
            answer=lambda row: answer_list(row["final_answer"], bool(row.get("is_multiple_answer"))),
            id=optional("id", "question_id"),
            meta=("subfield", "subject", "unit", "error", "answer_type", "is_multiple_answer"),
            leaves_out=_olympiad_leaves_out,
        ),
        Format(
            "imo_answerbench",
            question=column("Problem"),
            answer=lambda row: without_dollars(row["Short Answer"]),
            id=optional("Problem ID"),
            meta=("Category", "Subcategory", "Source"),
        ),
        Format(
            "openr1_math",
            question=column("problem"),
            answer=column("answer"),
            id=optional("uuid"),
            meta=("problem_type", "question_type", "source"),
            leaves_out=_openr1_leaves_out,
        ),
        Format(
            "gsmir",
            question=column("context"),
            answer=lambda row: number(column("ans")(row)),
            meta=("n_steps",),
        ),
        Format(
            "gsmir_clean",
            question=lambda row: f"{row['original_question'].strip()} {row['que'].strip()}",
            answer=lambda row: number(column("ans")(row)),
            meta=("n_steps",),
        ),
        Format(
            "mmlu",
            question=_with_choices(column("question"), column("choices")),
            answer=_key_of(column("answer")),
            meta=("type", "subject", "choices"),
            distractor=optional("distractor"),
        ),
        Format(
            "openbookqa",
            question=_open_book_question,
            answer=_open_book_answer,
            id=optional("id"),
            distractor=optional("distractor"),
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
