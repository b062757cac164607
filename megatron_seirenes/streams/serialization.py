"""Summaries of groups to plain data and back, exactly, so that what waits in a stream survives in a snapshot.

The plain form is dictionaries of the records' own field names, strings, numbers and sequences: JSON keeps all of it,
floats included (their shortest decimal form reads back to the same bits). Reading takes lists or tuples, and refuses
missing and unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from megatron_seirenes.records import Birth, GroupSummary

Plain = dict[str, Any]
_SEQUENCES = ("prompt_tokens", "response_tokens", "advantages")


def summary_to_plain(summary: GroupSummary) -> Plain:
    """A summary as plain data."""
    birth = _shallow(summary.birth) | {"stream_updates": dict(summary.birth.stream_updates)}
    return _shallow(summary) | {"birth": birth}


def summary_from_plain(plain: Mapping[str, Any]) -> GroupSummary:
    """The summary that `summary_to_plain` was given. Raises ValueError when fields are missing or unknown."""
    sequences = {name: tuple(plain.get(name, ())) for name in _SEQUENCES}
    stored = _checked(GroupSummary, plain)
    return GroupSummary(**stored | sequences | {"birth": Birth(**_checked(Birth, plain["birth"]))})


def _shallow(record: Any) -> Plain:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _checked(record: type, plain: Mapping[str, Any]) -> Plain:
    expected = {field.name for field in fields(record)}
    if plain.keys() != expected:
        missing, unknown = sorted(expected - plain.keys()), sorted(plain.keys() - expected)
        raise ValueError(f"stored {record.__name__}: missing fields {missing}, unknown fields {unknown}")
    return dict(plain)
