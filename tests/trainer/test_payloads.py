"""Payloads: what cannot be trained on is refused, what is stored comes back exactly, and homes move with the layout."""

import math

import pytest

from megatron_seirenes.errors import DataError, SeirenesError
from megatron_seirenes.records import Birth, Group, Request, Rollout, Sampling
from megatron_seirenes.trainer.payloads import PayloadStore, new_home, payloads_of, rehomed, summary_of


def rollout(name: str, tokens: int) -> Rollout:
    request = Request(name, "p", "R1", (0,), "reasoner", "shared", (1, 2, 3), Sampling(9), 0)
    return Rollout(request, tuple(range(tokens)), (-0.1,) * tokens, "stop", 0, "")


def group(name: str, *, old=((-0.1, -0.2), ()), reference=(), signal=True) -> Group:
    return Group(
        id=name,
        problem_id="p",
        stream="clean",
        stage="R1",
        rollouts=(rollout(f"{name}/0", 2), rollout(f"{name}/1", 0)),
        rewards=(1.0, 0.0),
        advantages=(1.0, -1.0),
        has_signal=signal,
        birth=Birth(1, 0, {"clean": 0}),
        old_logprobs=old,
        reference_logprobs=reference,
    )


def test_a_summary_has_everything_but_tokens():
    summary = summary_of(group("g"), home=3)
    assert (summary.prompt_tokens, summary.response_tokens, summary.home) == ((3, 3), (2, 0), 3)
    assert summary.response_tokens == group("g").response_tokens


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_logprobs_that_are_not_finite_are_refused(value):
    with pytest.raises(SeirenesError, match="g/0: a behaviour log-probability is not finite"):
        payloads_of(group("g", old=((-0.1, value), ())), False)
    with pytest.raises(SeirenesError, match="a reference log-probability is not finite"):
        payloads_of(group("g", reference=((value, -0.1), ())), False)


def test_one_logprob_a_token():
    with pytest.raises(SeirenesError, match="1 behaviour log-probabilities for 2 response tokens"):
        payloads_of(group("g", old=((-0.1,), ())), False)


def test_groups_without_signal_and_groups_that_left_are_not_kept():
    store = PayloadStore()
    for one in (group("a"), group("b"), group("c", signal=False, old=((math.nan,), ()))):
        store.add(one)
    assert len(store) == 2
    store.keep_only([summary_of(group("b"), 0)])
    kept = store.of([summary_of(group("b"), 0), summary_of(group("a"), 0)])
    assert list(kept) == [("clean", "b", 0), ("clean", "b", 1)]


def test_what_is_stored_comes_back_to_the_bit(tmp_path):
    store = PayloadStore(with_behaviour=True)
    values = (0.1 + 0.2, -1e-300)
    store.add(group("a", old=(values, ()), reference=((-0.0, -2.5), ())))
    store.add(group("b"))
    store.save(tmp_path, home=1)
    PayloadStore().save(tmp_path, home=0)
    back = PayloadStore()
    back.load(tmp_path, replica=1, replicas=2)
    assert len(back) == 2
    found = back.of([summary_of(group("a"), 1)])["clean", "a", 0]
    assert found.rollout_id == "a/0" and found.old_logprobs.tolist() == list(values)
    assert str(found.reference_logprobs.tolist()) == "[-0.0, -2.5]" and found.response_ids.tolist() == [0, 1]
    assert found.behaviour_logprobs.tolist() == [-0.1, -0.1]
    assert back.of([summary_of(group("b"), 1)])["clean", "b", 1].response_ids.tolist() == []
    back.load(tmp_path, replica=0, replicas=2)
    assert len(back) == 0
    back.load(tmp_path, replica=0, replicas=1)
    assert len(back) == 2


def test_every_home_has_one_heir():
    state = {"queues": {"clean": {"pending": [{"home": home} for home in range(5)], "newest_step": 1}}}
    homes = [one["home"] for one in rehomed(state, 3)["queues"]["clean"]["pending"]]
    assert homes == [new_home(home, 3) for home in range(5)] == [0, 1, 2, 0, 1]


def test_a_broken_file_is_named(tmp_path):
    PayloadStore().save(tmp_path, home=0)
    path = tmp_path / "00000.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"00000\.npz: cannot be read"):
        PayloadStore().load(tmp_path, 0, 1)
