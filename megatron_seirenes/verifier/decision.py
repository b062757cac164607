"""The whole decision on one (gold, answer) pair, cheapest means first. Runs inside a worker."""

from __future__ import annotations

from dataclasses import dataclass

from megatron_seirenes.records import VerdictReason
from megatron_seirenes.verifier.algebra import compare
from megatron_seirenes.verifier.exact import decide_at_once


@dataclass(frozen=True, slots=True)
class Options:
    """What is arguable about equality, by name."""


def decide(gold: str, answer: str, options: Options) -> VerdictReason:
    """The verdict on `answer`, total for every pair of strings."""
    at_once = decide_at_once(gold, answer)
    if at_once is not None:
        return at_once
    try:
        return compare(gold, answer)
    except RecursionError:
        return "unparsable"
