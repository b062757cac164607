"""Groups to plain data and back, exactly, so that what waits in a stream survives in a snapshot.

The plain form is dictionaries of the records' own field names, strings, numbers and sequences: JSON keeps all of it,
floats included (their shortest decimal form reads back to the same bits). The immutable tuples of a record are handed
over as they are, so that turning thousands of long rollouts into plain data copies no token. Reading takes lists or
tuples, and refuses missing and unknown fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from megatron_seirenes.records import Birth, Group, Request, Rollout, Sampling

Plain = dict[str, Any]


def group_to_plain(group: Group) -> Plain:
    """A group as plain data."""
    return _shallow(group) | {
        "rollouts": [_rollout_to_plain(rollout) for rollout in group.rollouts],
        "birth": _shallow(group.birth) | {"stream_updates": dict(group.birth.stream_updates)},
    }


def group_from_plain(plain: Mapping[str, Any]) -> Group:
    """The group that `group_to_plain` was given. Raises ValueError when fields are missing or unknown."""
    return Group(
        **_checked(Group, plain)
        | {
            "rollouts": tuple(_rollout_from_plain(rollout) for rollout in plain["rollouts"]),
            "rewards": tuple(plain["rewards"]),
            "advantages": tuple(plain["advantages"]),
            "birth": Birth(**_checked(Birth, plain["birth"])),
            "old_logprobs": tuple(map(tuple, plain["old_logprobs"])),
            "reference_logprobs": tuple(map(tuple, plain["reference_logprobs"])),
        }
    )


def _rollout_to_plain(rollout: Rollout) -> Plain:
    request = _shallow(rollout.request) | {"sampling": _shallow(rollout.request.sampling)}
    return _shallow(rollout) | {"request": request}


def _rollout_from_plain(plain: Mapping[str, Any]) -> Rollout:
    request = plain["request"]
    given_ids = request["given_ids"]
    return Rollout(
        **_checked(Rollout, plain)
        | {
            "request": Request(
                **_checked(Request, request)
                | {
                    "path": tuple(request["path"]),
                    "prompt_ids": tuple(request["prompt_ids"]),
                    "sampling": Sampling(**_checked(Sampling, request["sampling"])),
                    "given_ids": None if given_ids is None else tuple(given_ids),
                }
            ),
            "response_ids": tuple(plain["response_ids"]),
            "behaviour_logprobs": tuple(plain["behaviour_logprobs"]),
        }
    )


def _shallow(record: Any) -> Plain:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _checked(record: type, plain: Mapping[str, Any]) -> Plain:
    expected = {field.name for field in fields(record)}
    if plain.keys() != expected:
        missing, unknown = sorted(expected - plain.keys()), sorted(plain.keys() - expected)
        raise ValueError(f"stored {record.__name__}: missing fields {missing}, unknown fields {unknown}")
    return dict(plain)
