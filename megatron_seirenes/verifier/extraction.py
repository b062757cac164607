r"""Which part of a response is its answer, by named policy.

`boxed` takes what stands in the last complete `\boxed{...}` (or `\fbox{...}`) and nothing else; `final_number` takes
what follows the last `####` (GSM8K style) and falls back to the box; `choice` takes the letter of a multiple-choice
answer from the box, or from an anchored `answer is (B)`. No policy takes numbers out of prose.

Where a response closes its thinking (`</think>`), only what follows the last closing counts. Every policy is a pure
function, total, and linear in the length of the response, of which only the last `WINDOW` characters are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

WINDOW = 1 << 20

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_MARKED = re.compile(r"####\s*(?P<answer>[^\n]*)")
_LETTER = re.compile(r"[\s({\[*$]*(?P<letter>[A-Ja-j])(?=[\s)}\].,:;*$]|$)")
_ANCHORED_LETTER = re.compile(r"(?i:answer)(?i:\s+is)?\s*:?\s*[*$]*\(?(?P<letter>[A-J])\)?(?![A-Za-z0-9])")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|textrm|mathsf|boldsymbol)\s*(?=\{)")


def after_thinking(response: str) -> str:
    """The part of `response` that may hold an answer: the last `WINDOW` characters, after the last `</think>`."""
    return response[-WINDOW:].rpartition("</think>")[2]


def last_box(text: str) -> str | None:
    r"""The content of the complete `\boxed{...}` that closes last, stripped; None when there is none.

    A box around a box wins over the inner one; an unclosed box is no box. Escaped braces do not count.
    """
    first = _BOX.search(text)
    if first is None:
        return None
    answer: str | None = None
    opened: list[int | None] = []
    for token in _BRACE.finditer(text, first.start()):
        if token["box"]:
            opened.append(token.end())
        elif token["open"]:
            opened.append(None)
        elif token["close"] and opened:
            start = opened.pop()
            if start is not None:
                answer = text[start : token.start()]
    return answer.strip() if answer is not None else None


def boxed(response: str) -> str | None:
    """The last complete box after the thinking."""
    return last_box(after_thinking(response)) or None


def final_number(response: str) -> str | None:
    """What follows the last `####` on its line, or else the last complete box."""
    text = after_thinking(response)
    marker = text.rfind("####")
    if marker >= 0:
        marked = _MARKED.match(text, marker)
        answer = marked["answer"].strip() if marked else ""
        return answer.rstrip(".").strip() or None
    return last_box(text) or None


def choice_letter(answer: str) -> str | None:
    """The upper-case letter that `answer` (the inside of a box, or a gold) begins with: `B`, `(b)`, `\\text{B. 12}`."""
    letter = _LETTER.match(_TEXT_COMMAND.sub("", answer[:200]))
    return letter["letter"].upper() if letter else None


def choice(response: str) -> str | None:
    """The letter in the last complete box, or else of the last `answer is (B)`."""
    text = after_thinking(response)
    box = last_box(text)
    if box is not None:
        return choice_letter(box)
    letters = _ANCHORED_LETTER.findall(text)
    return letters[-1] if letters else None


POLICIES: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"boxed": boxed, "final_number": final_number, "choice": choice}
)
