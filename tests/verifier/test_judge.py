r"""The judge as the rest of the house uses it: background work, order, sharing, workers that end with it."""

import os
import signal
import time

import psutil
import pytest

from megatron_seirenes.config.schema import VerifierSection
from megatron_seirenes.verifier.judge import PooledJudge, judge_one, judge_pairs

SETTINGS = VerifierSection(cpu_seconds=2.0, memory_mb=1024)


def boxed(answer):
    return rf"thus \boxed{{{answer}}}"


@pytest.fixture(scope="module")
def judge():
    with PooledJudge(SETTINGS) as judge:
        yield judge


def verdicts(judge, pairs):
    for number, (gold, answer) in enumerate(pairs):
        judge.submit(str(number), gold, boxed(answer))
    got = dict(judge.drain())
    return [got[str(number)] for number in range(len(pairs))]


def test_what_is_certain_needs_no_worker():
    with PooledJudge(SETTINGS) as judge:
        judge.submit("a", "18", boxed("18.0"))
        judge.submit("b", "18", boxed("19"))
        judge.submit("c", "18", "18")
        got = dict(judge.ready())
        assert [got[key].reason for key in "abc"] == ["match", "mismatch", "no_answer"]
        assert judge.worker_pids() == []
        assert got["c"].extracted is None and got["a"].extracted == "18.0"


def test_algebra_goes_to_a_worker_and_identical_pairs_only_once(judge):
    got = verdicts(judge, [(r"\sqrt{8}", r"2\sqrt{2}")] * 3)
    assert all(verdict.correct for verdict in got)
    assert [verdict.seconds > 0 for verdict in got].count(True) == 1
    judge.submit("again", r"\sqrt{8}", boxed(r"2\sqrt{2}"))
    assert dict(judge.ready())["again"].correct


def test_a_key_is_pending_once(judge):
    judge.submit("twice", r"\sqrt{12}", boxed(r"2\sqrt{3}"))
    with pytest.raises(ValueError, match="twice"):
        judge.submit("twice", r"\sqrt{12}", boxed(r"2\sqrt{3}"))
    judge.drain()


def test_a_killed_worker_changes_no_verdict(judge):
    expected = verdicts(judge, [(r"\sqrt{18}", r"3\sqrt{2}"), (r"\sqrt{18}", r"2\sqrt{3}")])
    (victim,) = judge.worker_pids()
    os.kill(victim, signal.SIGKILL)
    again = verdicts(judge, [(r"\sqrt{18}\cdot 1", r"3\sqrt{2}"), (r"\sqrt{18}\cdot 1", r"2\sqrt{3}")])
    assert [verdict.reason for verdict in again] == [verdict.reason for verdict in expected] == ["match", "mismatch"]
    assert judge.worker_pids() != [victim]


def test_a_stopped_worker_still_obeys_close():
    with PooledJudge(SETTINGS) as judge:
        verdicts(judge, [(r"\sqrt{18}", r"3\sqrt{2}")])
        (pid,) = judge.worker_pids()
        os.kill(pid, signal.SIGSTOP)
        judge.submit("lost", r"\sqrt{20}", boxed(r"2\sqrt{5}"))
    assert not psutil.pid_exists(pid)


def test_workers_end_with_the_judge_and_signals_stay_the_hosts():
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGCHLD)
    with PooledJudge(SETTINGS) as judge:
        verdicts(judge, [("x+1", "1+x")])
        pids = judge.worker_pids()
        assert len(pids) == 1
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGCHLD)) == before


def test_submitting_and_asking_do_not_wait(judge):
    judge.drain()
    began = time.perf_counter()
    for number in range(200):
        judge.submit(f"quick{number}", "x+1", boxed(f"x+1+{number}"))
        judge.ready()
    assert (time.perf_counter() - began) / 200 < 2e-3
    judge.drain()


def test_pairs_come_back_in_order():
    golds = [r"\sqrt{8}", "1", "1", r"\sqrt{8}", "2"]
    pairs = zip(golds, [boxed(r"2\sqrt{2}"), boxed("1"), "1", boxed("3"), boxed("2")], strict=True)
    reasons = [verdict.reason for verdict in judge_pairs(pairs, SETTINGS)]
    assert reasons == ["match", "match", "no_answer", "mismatch", "match"]


def test_one_pair():
    assert judge_one("B", r"\boxed{\text{(B)}}", VerifierSection(extraction="choice")).correct
