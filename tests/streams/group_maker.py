"""Small summaries of groups for tests of the streams."""

from __future__ import annotations

from megatron_seirenes.records import Birth, GroupSummary


def make_summary(name: str, stream: str, birth: Birth, signal: bool = True, **changes) -> GroupSummary:
    fields = {
        "id": name,
        "problem_id": "p",
        "stream": stream,
        "stage": "R1",
        "prompt_tokens": (3, 3),
        "response_tokens": (2, 5),
        "advantages": (1.0, -1.0) if signal else (0.0, 0.0),
        "has_signal": signal,
        "birth": birth,
    }
    return GroupSummary(**fields | changes)
