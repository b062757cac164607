"""Summaries survive JSON bit for bit."""

from __future__ import annotations

import json
import math

import pytest
from group_maker import make_summary
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_seirenes.records import Birth
from megatron_seirenes.streams.serialization import summary_from_plain, summary_to_plain

BIRTH = Birth(step=1, policy_version=2, stream_updates={"clean": 1, "robust": 1})
FLOATS = st.floats(allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(FLOATS, st.integers(0, 2**40), st.booleans())
def test_json_round_trip_is_exact(advantage, tokens, signal):
    summary = make_summary(
        "g", "clean", BIRTH, signal, advantages=(-advantage, 0.1 + 0.2), response_tokens=(tokens, 0), home=3
    )
    back = summary_from_plain(json.loads(json.dumps(summary_to_plain(summary))))
    assert back == summary
    assert repr(back) == repr(summary)  # tells -0.0 from 0.0 and tuples from lists
    assert math.copysign(1, back.advantages[0]) == math.copysign(1, -advantage)


def test_missing_and_unknown_fields_are_refused():
    plain = summary_to_plain(make_summary("g", "clean", BIRTH))
    with pytest.raises(ValueError, match=r"stored GroupSummary: missing fields \[\], unknown fields \['colour'\]"):
        summary_from_plain(plain | {"colour": "red"})
    birth = dict(plain["birth"])
    del birth["step"]
    with pytest.raises(ValueError, match=r"stored Birth: missing fields \['step'\]"):
        summary_from_plain(plain | {"birth": birth})
    del plain["home"]
    with pytest.raises(ValueError, match=r"stored GroupSummary: missing fields \['home'\]"):
        summary_from_plain(plain)
