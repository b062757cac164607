import gzip
import json
from pathlib import Path

import pytest
from observe_samples import bundle, decode, groups_of

from megatron_seirenes.errors import DataError
from megatron_seirenes.observe.records import (
    encode_records,
    read_records,
    rollout_records,
    write_records,
)

ONE = bundle("p/1", (True, False), {"a hint — ü": (False, True), "bad": ()}, refused=["bad"], step=12)
PROMISED = {
    "problem_id",
    "stage",
    "parent",
    "role",
    "prompt",
    "response",
    "response_tokens",
    "finish_reason",
    "reward",
    "advantage",
    "stream",
    "policy_version",
    "judged",
}


def test_every_rollout_has_a_record_with_the_promised_fields() -> None:
    records = rollout_records(ONE, groups_of(ONE), decode)
    assert [record["stage"] for record in records] == ["plain"] * 2 + ["lure"] * 2 + ["tempted"] * 2
    assert all(record.keys() >= PROMISED for record in records)


def test_credit_verdict_and_refusal_stand_where_they_belong() -> None:
    plain, _, lure, refused, tempted, _ = rollout_records(ONE, groups_of(ONE), decode)
    assert (plain["stream"], plain["reward"], plain["advantage"]) == ("clean", 1.0, 1.0)
    assert (plain["judged"], plain["correct"], plain["extracted"], plain["reason"]) == (True, True, "7", "match")
    assert (lure["stream"], lure["reward"], lure["advantage"]) == ("adversary", 0.5, 0.25)
    assert (lure["judged"], lure["correct"], lure["refused"]) == (False, None, None)
    assert refused["refused"] == "not about the question"
    assert (tempted["stream"], tempted["reward"], tempted["advantage"]) == (None, None, None)
    assert (tempted["parent"], tempted["path"], tempted["prompt"]) == (lure["id"], [0, 0], "<1> <0>")
    assert (tempted["response_tokens"], tempted["finish_reason"], tempted["step"]) == (4, "length", 12)


def test_each_prompt_is_decoded_once() -> None:
    seen: list[tuple[int, ...]] = []

    def count(ids: object) -> str:
        seen.append(tuple(ids))  # type: ignore[arg-type]
        return ""

    rollout_records(ONE, {}, count)
    assert len(seen) == len(set(seen)) == 2


def test_files_are_whole_and_the_same_bytes(tmp_path: Path) -> None:
    records = rollout_records(ONE, groups_of(ONE), decode)
    first = write_records(tmp_path / "a", 12, [encode_records(records)])
    second = write_records(tmp_path / "b", 12, [encode_records(records)])
    assert first == tmp_path / "a" / "rollouts" / "step-000012.jsonl.gz"
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[4:8] == bytes(4), "the gzip header holds no time"
    assert list(read_records(first)) == records
    assert [path.name for path in first.parent.iterdir()] == [first.name], "no partial file is left"
    assert "seconds" not in gzip.decompress(first.read_bytes()).decode()


def test_members_of_several_ranks_make_one_file(tmp_path: Path) -> None:
    records = rollout_records(ONE, groups_of(ONE), decode)
    path = write_records(tmp_path, 1, [encode_records(records[:2]), encode_records([]), encode_records(records[2:])])
    with gzip.open(path, "rt") as file:
        assert [json.loads(line) for line in file] == records


def test_a_text_that_is_not_unicode_is_still_written(tmp_path: Path) -> None:
    path = write_records(tmp_path, 1, [encode_records([{"response": "half \ud83d line \u2028 end"}])])
    assert next(read_records(path))["response"].startswith("half ")


def test_a_file_cut_short_names_itself(tmp_path: Path) -> None:
    path = write_records(tmp_path, 1, [encode_records(rollout_records(ONE, {}, decode))])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"step-000001"):
        list(read_records(path))
