r"""No input stops the judge, costs more than its limit, or changes another's verdict, however busy the machine is."""

import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest
from hostile import hostile_answers
from test_pairs import read_table

from megatron_seirenes.config.schema import VerifierSection
from megatron_seirenes.errors import MissingComponentError
from megatron_seirenes.verifier.decision import decide
from megatron_seirenes.verifier.judge import PooledJudge, judge_one, judge_pairs
from megatron_seirenes.verifier.options import Options

LIMIT = 2.0
SETTINGS = VerifierSection(workers=2, cpu_seconds=LIMIT, memory_mb=1024)
SPINNING = r"\int \int \int e^{x^y^z} \sqrt{\sin x \cos y \tan z} dx dy dz"


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def honest_pairs(count):
    """The table's pairs over and over, made different by a factor so that none is judged from memory."""
    table = [pair for pair in read_table() if pair.kind not in {"hostile", "words", "letter", "time", "interval"}]
    for number in range(count):
        pair = table[number % len(table)]
        yield pair.gold + " " * (number // len(table)), boxed(pair.answer)


def mixed_inputs(honest, hostile):
    inputs = [(gold, answer, True) for gold, answer in honest] + [("7", boxed(answer), False) for answer in hostile]
    random.Random(1).shuffle(inputs)
    return inputs


@pytest.fixture
def busy_cores():
    spin = "while True: pass"
    burners = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


def reasons_of(inputs, settings):
    return [verdict.reason for verdict in judge_pairs(((gold, answer) for gold, answer, _ in inputs), settings)]


def test_a_spinning_input_ends_at_its_limit_and_its_neighbours_do_not_notice():
    settings = VerifierSection(cpu_seconds=1.0)
    pairs = [(r"\sqrt{8}", boxed(r"2\sqrt{2}")), ("7", boxed(SPINNING)), (r"\sqrt{8}", boxed(r"3\sqrt{2}"))]
    verdicts = list(judge_pairs(pairs, settings))
    assert [verdict.reason for verdict in verdicts] == ["match", "timeout", "mismatch"]
    assert 1.0 <= verdicts[1].seconds <= 2.0


def test_a_host_too_busy_to_look_does_not_let_an_input_run_on():
    """The kernel's timer ends the worker when the parent cannot (here: its thread is held off by a stopped select)."""
    with PooledJudge(VerifierSection(cpu_seconds=1.0)) as judge:
        judge.submit("warm", r"\sqrt{8}", boxed(r"2\sqrt{2}"))
        judge.drain()
        (pid,) = judge.worker_pids()
        worker = psutil.Process(pid)
        judge._pool._check_due = lambda: None
        judge.submit("spin", "7", boxed(SPINNING))
        ((_, verdict),) = judge.drain()
        assert verdict.reason == "timeout"
        assert not worker.is_running()


def test_the_kernel_caps_the_memory_and_forbids_core_dumps():
    with PooledJudge(SETTINGS) as judge:
        judge.submit("warm", r"\sqrt{8}", boxed(r"2\sqrt{2}"))
        judge.drain()
        (pid,) = judge.worker_pids()
        worker = psutil.Process(pid)
        assert worker.rlimit(psutil.RLIMIT_AS) == (1024 << 20, 1024 << 20)
        assert worker.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert set(worker.environ()) <= {
            "PATH",
            "PYTHONPATH",
            "PYTHONHASHSEED",
            "PYTHONDONTWRITEBYTECODE",
            "LC_ALL",
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
        }
        assert os.getsid(pid) != os.getsid(0)


def test_workers_that_cannot_start_are_reported():
    with pytest.raises(MissingComponentError, match=r"verifier\.memory_mb"):
        judge_one("x+1", boxed("1+x"), VerifierSection(memory_mb=32))


def test_every_hostile_answer_is_refused():
    fast = [answer for answer in hostile_answers() if r"\int" not in answer]
    began = time.process_time()
    accepted = [answer for answer in fast if len(answer) < 5_000 and decide("7", answer, Options()) == "match"]
    assert accepted == []
    assert time.process_time() - began < 20


def test_workers_killed_at_random_change_no_verdict():
    inputs = mixed_inputs(honest_pairs(300), [])
    expected = [verdict.reason for verdict in judge_pairs(((gold, answer) for gold, answer, _ in inputs), SETTINGS)]
    draw = random.Random(3)
    with PooledJudge(SETTINGS) as judge:
        got = {}
        for number, (gold, answer, _) in enumerate(inputs):
            judge.submit(str(number), gold, answer)
            if number % 60 == 30 and judge.worker_pids():
                os.kill(draw.choice(judge.worker_pids()), signal.SIGKILL)
            got.update(judge.ready())
        got.update(judge.drain())
    assert [got[str(number)].reason for number in range(len(inputs))] == expected


@pytest.mark.slow
def test_hostile_among_honest_on_a_busy_machine(busy_cores):
    inputs = mixed_inputs(honest_pairs(2_000), hostile_answers(200))
    idle_reasons = {(gold, answer): decide(gold, answer[7:-1], Options()) for gold, answer, honest in inputs if honest}
    verdicts, pids = {}, set()
    with PooledJudge(SETTINGS) as judge:
        for number, (gold, answer, _) in enumerate(inputs):
            judge.submit(str(number), gold, answer)
            verdicts.update(judge.ready())
            pids.update(judge.worker_pids())
        verdicts.update(judge.drain())
        pids.update(judge.worker_pids())
    for number, (gold, answer, honest) in enumerate(inputs):
        verdict = verdicts[str(number)]
        assert verdict.seconds <= LIMIT + 1.0
        if honest:
            assert verdict.reason == idle_reasons[gold, answer], (gold, answer)
        else:
            assert not verdict.correct or verdict.extracted != answer[7:-1], answer
    assert not any(psutil.pid_exists(pid) for pid in pids)
