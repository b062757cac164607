"""`seirenes judge`: judges answers, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from megatron_seirenes.cli.arguments import Overrides
from megatron_seirenes.errors import DataError, UsageError

EXAMPLE = r"seirenes judge --gold '\frac{1}{2}' --answer 'so it is \boxed{0.5}'"


def judge(
    gold: Annotated[str | None, typer.Option(metavar="G", help="The right answer.")] = None,
    answer: Annotated[str | None, typer.Option(metavar="A", help="A response that ends in \\boxed{...}.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="PAIRS.jsonl", help="Many: an object with gold and answer a line.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Judge answers; prints {"correct", "extracted", "reason", "seconds"} a line.

    Options of the judge are given as in a configuration: verifier.extraction=choice.
    """
    if (file is None) == (gold is None and answer is None) or (file is None and (gold is None or answer is None)):
        raise UsageError("judge: give --gold and --answer, or --file; nothing else fits together")
    from megatron_seirenes.config.loading import config_of_overrides
    from megatron_seirenes.verifier.judge import judge_pairs

    pairs = _pairs(file) if file is not None else [(gold or "", answer or "")]
    for verdict in judge_pairs(pairs, config_of_overrides(overrides or ()).verifier):
        print(json.dumps(asdict(verdict)), flush=True)


def _pairs(file: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--file: {file} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _pair(line, f"{file}:{number}")


def _pair(line: str, place: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON: {error}") from None
    if isinstance(row, dict) and isinstance(row.get("gold"), str) and isinstance(row.get("answer"), str):
        return row["gold"], row["answer"]
    raise DataError(f"{place}: an object with the texts gold and answer is expected, seen {line[:60]}")
