"""Stops are noted by a thread while the main thread is busy, and a second one ends the process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from megatron_seirenes.trainer.signals import StopListener


def wait_until(condition) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_noted_and_handlers_are_restored(number):
    before = signal.getsignal(number)
    with StopListener() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert wait_until(lambda: stop.requested) and stop.received == number
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_the_process_at_once():
    program = (
        "import os, signal, time\n"
        "from megatron_seirenes.trainer.signals import StopListener\n"
        "with StopListener() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    while not stop.requested: time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(30)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=20)
    assert done.returncode == 128 + signal.SIGTERM
