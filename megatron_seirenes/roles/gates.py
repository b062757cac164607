r"""Gates: pure functions that refuse a role's response before anyone is shown it.

A gate answers None to admit a text, or the reason of its refusal in a few words. A refused hint gets no R3 and earns
the role's `gate_penalty`. The paper has no gate, and none is the default; where an Adversary can win by noise (label
spam in the small world; gibberish, prompt injection or counterfeit format at scale) a gate takes that way from it.
A new gate is a function and a row of GATES.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from megatron_seirenes.errors import DataError
from megatron_seirenes.problems.chain_statements import parse_statements
from megatron_seirenes.problems.chains import chain_of
from megatron_seirenes.records import Problem

Gate = Callable[[str, Problem], str | None]

_ODD_CATEGORIES = {"Cc", "Cn", "Co", "Cs"}  # control, unassigned, private use, surrogate
_CONTROL_MARKER = re.compile(r"<\|[^<>|\n]{1,40}\|>|</?s>|\[/?INST\]|</?think>|</?tool_call>")
_ROLE_LINE = re.compile(r"^\W{0,4}(system|user|assistant|human)\W{0,4}:", re.IGNORECASE | re.MULTILINE)
_BOXED = re.compile(r"\\f?boxed\b")
_REPEATED = re.compile(r"(\S.{1,39}?)\1{15,}", re.DOTALL)


def chain_statements(text: str, problem: Problem) -> str | None:
    """For the small world: well-formed statements about this question's labels, each label and the claim once."""
    try:
        parse_statements(text, chain_of(problem))
    except ValueError as refusal:
        return str(refusal)
    return None


def plain_text(text: str, problem: Problem) -> str | None:
    r"""For language models: prose and mathematics, and nothing else.

    Refuses an empty text; control, private-use and unassigned characters (line breaks and tabs are fine); spelled chat
    control tokens; lines that open a turn, such as `system:`; `\boxed`, which would hand the reader a ready-made
    final answer in the judge's own format; and a passage of 2 to 40 characters sixteen times in a row.
    """
    if not text.strip():
        return "empty"
    odd = [char for char in text if unicodedata.category(char) in _ODD_CATEGORIES and char not in "\n\r\t"]
    if odd:
        return f"character U+{ord(odd[0]):04X}"
    if _CONTROL_MARKER.search(text):
        return "chat control token"
    if _ROLE_LINE.search(text):
        return "opens a turn"
    if _BOXED.search(text):
        return "boxed answer"
    if _REPEATED.search(text):
        return "repetition"
    return None


GATES: dict[str, Gate] = {gate.__name__: gate for gate in (chain_statements, plain_text)}


def find_gate(name: str) -> Gate:
    """The gate of this name. Raises DataError that lists the known ones."""
    if name not in GATES:
        raise DataError(f"unknown gate {name!r}; known: {', '.join(GATES)} (null: no gate)")
    return GATES[name]
