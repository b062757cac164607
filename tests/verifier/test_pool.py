r"""The pool of workers: what befalls a job whose worker is lost, the bounded queue, and how little it costs to wait."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import psutil
import pytest

from megatron_seirenes.verifier import pool as pool_module
from megatron_seirenes.verifier import process as process_module
from megatron_seirenes.verifier.meter import usage
from megatron_seirenes.verifier.options import Options
from megatron_seirenes.verifier.pool import WorkerPool
from megatron_seirenes.verifier.worker import OUT_OF_MEMORY

SPINNING = r"\int \int \int e^{x^y^z} \sqrt{\sin x \cos y \tan z} dx dy dz"


def make_pool(cpu_seconds=2.0, workers=1, capacity=64):
    return WorkerPool(workers, cpu_seconds, 1024, capacity, asdict(Options()))


@pytest.fixture
def pool():
    pool = make_pool()
    yield pool
    pool.close()


def judged(pool, count):
    got = []
    while len(got) < count:
        pool.wait()
        got += pool.take()
    return {judged.ticket: judged.reason for judged in got}


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def spinning_worker(pool):
    """The process that judges the spinning input, once it is at it."""
    wait_until(lambda: pool.worker_pids() and pool._workers[0].job is not None)
    (pid,) = pool.worker_pids()
    began = usage(pid).cpu_seconds
    wait_until(lambda: usage(pid).cpu_seconds > began + 0.05)
    return pid


def test_a_lost_worker_is_forgiven_once(pool):
    pool.submit(1, "7", SPINNING)
    first = spinning_worker(pool)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: pool.worker_pids() and pool.worker_pids() != [first])
    assert not pool.take()
    os.kill(spinning_worker(pool), signal.SIGKILL)
    assert judged(pool, 1) == {1: "timeout"}
    pool.submit(2, "x+1", "1+x")
    assert judged(pool, 1) == {2: "match"}


def test_a_stopped_worker_is_replaced_and_its_job_judged_again(pool, monkeypatch):
    monkeypatch.setattr(process_module, "STALL_SECONDS", 0.5)
    pool.submit(1, "x+1", "1+x")
    judged(pool, 1)
    (pid,) = pool.worker_pids()
    os.kill(pid, signal.SIGSTOP)
    pool.submit(2, r"\sqrt{8}", r"2\sqrt{2}")
    assert judged(pool, 1) == {2: "match"}
    assert not psutil.pid_exists(pid)


def test_the_queue_is_bounded():
    pool = make_pool(cpu_seconds=0.5, capacity=2)
    try:
        pool.submit(1, "7", SPINNING)
        pool.submit(2, "x+1", "1+x")
        began = time.monotonic()
        pool.submit(3, "x+2", "2+x")
        assert time.monotonic() - began > 0.4
        assert judged(pool, 3) == {1: "timeout", 2: "match", 3: "match"}
    finally:
        pool.close()


def test_a_worker_is_renewed_after_its_share_of_jobs(pool, monkeypatch):
    monkeypatch.setattr(pool_module, "JOBS_A_WORKER", 2)
    pids = set()
    for ticket in range(5):
        pool.submit(ticket, f"x+{ticket}", f"{ticket}+x")
        assert judged(pool, 1) == {ticket: "match"}
        pids.update(pool.worker_pids())
    assert len(pids) == 3


def test_waiting_costs_nothing():
    """In a process of its own: other rooms' tests leave threads behind whose time would be counted."""
    script = (
        "import time\n"
        "from megatron_seirenes.verifier.judge import PooledJudge\n"
        "from megatron_seirenes.verifier.meter import usage\n"
        "from megatron_seirenes.config.schema import VerifierSection\n"
        "with PooledJudge(VerifierSection()) as judge:\n"
        "    judge.submit('a', 'x+1', r'\\boxed{1+x}'); judge.drain()\n"
        "    (pid,) = judge.worker_pids()\n"
        "    before = time.process_time(), usage(pid).cpu_seconds\n"
        "    time.sleep(0.5)\n"
        "    print(time.process_time() - before[0], usage(pid).cpu_seconds - before[1])\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    host, worker = map(float, said.split())
    assert host < 0.02 and worker < 0.02


def test_strange_characters_travel_whole(pool):
    strange = ["\0", "\ud800x", "\u2028", "\n", '"', "\\", "𝕏" * 3_900, "\x1b" * 3_900]
    for ticket, text in enumerate(strange):
        pool.submit(ticket, text + " ", text)
    assert set(judged(pool, len(strange)).values()) <= {"match", "mismatch", "unparsable"}


def test_no_worker_outlives_its_host():
    script = (
        "from megatron_seirenes.verifier.judge import PooledJudge\n"
        "from megatron_seirenes.config.schema import VerifierSection\n"
        "import os\n"
        "judge = PooledJudge(VerifierSection(cpu_seconds=60.0))\n"
        "judge.submit('a', 'x+1', r'\\boxed{1+x}'); judge.drain()\n"
        f"judge.submit('b', '7', r'\\boxed{{{SPINNING}}}')\n"
        "print(judge.worker_pids()[0], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    host = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid = int(host.stdout)
    wait_until(lambda: not psutil.pid_exists(pid), seconds=5)


def test_running_out_of_memory_ends_the_worker_without_a_verdict():
    script = (
        "import sys\n"
        "from megatron_seirenes.verifier.worker import confine, private_output, serve\n"
        "confine(512)\n"
        "serve(lambda gold, answer: str(len(bytearray(1 << 30))), 5.0, sys.stdin.buffer, private_output())\n"
    )
    request = '{"ticket": 1, "gold": "7", "answer": "7"}\n'
    worker = subprocess.run([sys.executable, "-c", script], input=request, capture_output=True, text=True, check=False)
    assert worker.returncode == OUT_OF_MEMORY
    assert worker.stdout == '{"ready": true}\n'


def test_a_worker_loads_nothing_heavy():
    script = (
        "import megatron_seirenes.verifier.decision, megatron_seirenes.verifier.worker, sys\n"
        "print([name for name in ('torch', 'megatron', 'vllm', 'pydantic', 'numpy') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_process_that_is_gone_has_no_usage():
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    assert usage(gone.pid) is None
    assert usage(os.getpid()).cpu_seconds > 0
