"""Groups survive JSON bit for bit."""

from __future__ import annotations

import json
import math

import pytest
from group_maker import make_group, make_rollout
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.records import Birth
from megatron_seirenes.streams.serialization import group_from_plain, group_to_plain

BIRTH = Birth(step=1, policy_version=2, stream_updates={"clean": 1, "robust": 1})
FLOATS = st.floats(allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(FLOATS, min_size=2, max_size=2), FLOATS, st.one_of(st.none(), st.just((5, 6))), st.booleans())
def test_json_round_trip_is_exact(logprobs, reward, given_ids, referenced):
    rollout = make_rollout("r", given_ids=given_ids)
    group = make_group(
        "g",
        "clean",
        BIRTH,
        rollouts=(rollout, make_rollout("s", tokens=0)),
        rewards=(reward, 0.0),
        advantages=(-reward, 0.1 + 0.2),
        old_logprobs=(tuple(logprobs), ()),
        reference_logprobs=((-1e-300, -0.0), ()) if referenced else (),
    )
    back = group_from_plain(json.loads(json.dumps(group_to_plain(group))))
    assert back == group
    assert repr(back) == repr(group)  # tells -0.0 from 0.0 and tuples from lists
    assert math.copysign(1, back.rewards[0]) == math.copysign(1, reward)


def test_plain_form_copies_no_tokens():
    group = make_group("g", "clean", BIRTH)
    plain = group_to_plain(group)
    assert plain["rollouts"][0]["response_ids"] is group.rollouts[0].response_ids
    assert group_from_plain(plain).old_logprobs[0] is group.old_logprobs[0]


def test_missing_and_unknown_fields_are_refused():
    plain = group_to_plain(make_group("g", "clean", BIRTH))
    with pytest.raises(ValueError, match=r"stored Group: missing fields \[\], unknown fields \['colour'\]"):
        group_from_plain(plain | {"colour": "red"})
    rollout = dict(plain["rollouts"][0])
    del rollout["text"]
    with pytest.raises(ValueError, match=r"stored Rollout: missing fields \['text'\]"):
        group_from_plain(plain | {"rollouts": [rollout]})
