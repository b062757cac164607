from pathlib import Path

import pytest
from observe_samples import metrics_row

from megatron_seirenes.observe.metrics import METRICS, describe, find, markdown, placeholders, validate_row

ROOT = Path(__file__).resolve().parents[2]

CONTRACT = """step policy_version success/clean success/hinted attack/delta attack/strong
streams/clean/candidates streams/clean/zero_advantage streams/clean/accepted streams/clean/evicted_stale
streams/clean/evicted_overflow streams/clean/pending streams/clean/updates streams/clean/updates_total
streams/clean/lag_mean streams/clean/lag_max streams/clean/policy_lag_max streams/clean/suspended
loss/clean grad_norm/clean ppo_kl/clean reference_kl/clean clip_fraction/clean entropy/clean
advantage/clean/mean advantage/clean/std mismatch/logprob_abs_mean mismatch/logprob_abs_max mismatch/prob_ratio
mastery/retired mastery/live_fraction length/R1/mean length/R1/max truncated/R1
verifier/judged verifier/timeouts verifier/no_answer verifier/seconds
time/rollout time/judge_wait time/train time/sync time/snapshot time/step
tokens/generated tokens/trained throughput/generated throughput/trained evaluation/aime24/avg@8"""


@pytest.mark.parametrize("key", CONTRACT.split())
def test_every_promised_key_is_described(key: str) -> None:
    assert describe(key).meaning


def test_the_page_is_printed_from_the_table() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == markdown()


def test_patterns_are_unique_and_unambiguous() -> None:
    names = {"s": "clean", "stage": "R1", "benchmark": "aime24", "k": "8"}
    keys = [metric.pattern.format(**names) for metric in METRICS]
    assert len(set(keys)) == len(METRICS)
    assert [find(key) for key in keys] == list(METRICS)


def test_placeholders_are_read_out_of_a_key() -> None:
    assert placeholders("streams/robust/lag_max") == {"s": "robust"}
    assert placeholders("evaluation/aime24/avg@16/low") == {"benchmark": "aime24", "k": "16"}
    assert placeholders("time/step") == {}


@pytest.mark.parametrize(
    "key", ["sucess/clean", "streams/clean/pendng", "streams/a/b/pending", "evaluation/x/avg@k", ""]
)
def test_an_unknown_key_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValueError, match="stands in no entry") as error:
        validate_row({"step": 1, key: 1.0})
    assert repr(key) in str(error.value)


def test_the_nearest_key_is_named() -> None:
    with pytest.raises(ValueError, match="near it: success/clean"):
        describe("sucess/clean")


def test_a_whole_row_passes_and_names_can_be_checked() -> None:
    row = metrics_row(10)
    validate_row(row, streams=("clean", "adversary", "robust"), stages=("plain", "lure", "tempted"))
    with pytest.raises(ValueError, match="'robust' is not one of"):
        validate_row(row, streams=("clean", "adversary"))
    with pytest.raises(ValueError, match="'lure' is not one of"):
        validate_row(row, stages=("plain", "tempted"))


@pytest.mark.parametrize("value", [True, "0.5", [1.0], {}])
def test_values_are_numbers_or_null(value: object) -> None:
    with pytest.raises(ValueError, match="neither a number nor null"):
        validate_row({"step": 1, "success/clean": value})


@pytest.mark.parametrize("row", [{}, {"step": None}, {"step": 1.5}, {"step": -1}, {"step": True}])
def test_a_row_has_a_step(row: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="step is"):
        validate_row(row)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError) as error:
        validate_row({"step": 1, "nonsense": 1, "time/step": "3"})
    assert "nonsense" in str(error.value)
    assert "time/step" in str(error.value)
