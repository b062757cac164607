import fcntl
import io
import os
import subprocess
import sys
import termios

import pytest
from observe_samples import bundle, decode, groups_of, metrics_row, three_stage_game
from rich.console import Console as RichConsole

from megatron_seirenes.config.schema import Budget
from megatron_seirenes.observe.console import (
    Console,
    LiveConsole,
    PlainConsole,
    SilentConsole,
    duration,
    make_console,
    number,
)
from megatron_seirenes.observe.forecast import Forecast, Spent
from megatron_seirenes.observe.keys import Keys
from megatron_seirenes.observe.records import rollout_records

STREAMS = three_stage_game().streams


def terminal(tty: bool) -> RichConsole:
    return RichConsole(file=io.StringIO(), force_terminal=tty, width=120, height=40, color_system=None)


def text(console: RichConsole) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def one_step(console: Console, step: int = 3) -> None:
    console.begin_step(step)
    console.phase("rollout")
    console.progress(5, 18, 1234)
    console.end_step(metrics_row(step))
    console.event("snapshot [step-000003] written")
    console.close()


@pytest.mark.parametrize(
    ("mode", "tty", "rank", "made"),
    [
        ("auto", True, 0, LiveConsole),
        ("auto", False, 0, PlainConsole),
        ("plain", True, 0, PlainConsole),
        ("live", False, 0, LiveConsole),
        ("none", True, 0, SilentConsole),
        ("live", True, 1, SilentConsole),
    ],
)
def test_which_console_is_made(mode: str, tty: bool, rank: int, made: type) -> None:
    console = make_console(mode, STREAMS, 40, rank=rank, terminal=terminal(tty))  # type: ignore[arg-type]
    console.close()
    assert type(console) is made


def test_plain_prints_one_line_a_step_and_an_event() -> None:
    out = terminal(False)
    one_step(make_console("plain", STREAMS, 40, terminal=out))
    first, second = text(out).splitlines()
    assert first.startswith("step 3/40 | clean 0.530 hinted ")
    for part in (
        "clean 6/8 +1",
        "adversary 1/8 +1",
        "robust 4/8 +1",
        "10,003 tokens, 1,000/s",
        "8.0s a step",
        "left 4m56s",
    ):
        assert part in first
    assert second == "snapshot [step-000003] written"


def test_live_shows_step_queues_progress_and_events() -> None:
    out = terminal(True)
    one_step(make_console("live", STREAMS, 40, terminal=out))
    shown = text(out)
    for part in (
        "3/40",
        "4m56s",
        "0.530",
        "clean",
        "adversary",
        "robust",
        "5/18 rollouts, 1,234 tokens",
        "[step-000003]",
    ):
        assert part in shown


def test_live_redraws_no_more_than_it_should() -> None:
    now = [0.0]
    out = terminal(True)
    console = LiveConsole(STREAMS, 40, Forecast(40), out, clock=lambda: now[0])
    console.begin_step(1)
    before = len(text(out))
    for done in range(1000):
        now[0] += 0.001
        console.progress(done, 1000, done)
    redraws = text(out)[before:].count("rollouts,")
    console.close()
    assert 3 <= redraws <= 5


def test_silent_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    one_step(make_console("none", STREAMS, 40))
    assert capsys.readouterr() == ("", "")


def step(number: int, seconds: float, tokens: int = 0, updates: int = 0) -> dict[str, float | int | None]:
    return {"step": number, "time/step": seconds, "tokens/generated": tokens, "streams/a/updates": updates}


def test_time_left_follows_the_moving_mean() -> None:
    forecast = Forecast(100)
    assert forecast.seconds_left() is None
    for index in range(1, 11):
        forecast.observe(step(index, 100.0))
    for index in range(11, 21):
        forecast.observe(step(index, 2.0))
    assert forecast.seconds_left() == 80 * 2.0


@pytest.mark.parametrize(
    ("budget", "left"),
    [
        (Budget(), 90 * 4.0),
        (Budget(hours=0.025), 50.0),
        (Budget(generated_tokens=2_000), 10 * 4.0),
        (Budget(updates=25), 2.5 * 4.0),
        (Budget(hours=0.001), 0.0),
    ],
)
def test_a_budget_ends_a_run_before_its_last_step(budget: Budget, left: float) -> None:
    forecast = Forecast(100, budget)
    for index in range(1, 11):
        forecast.observe(step(index, 4.0, tokens=100, updates=2))
    assert forecast.seconds_left() == pytest.approx(left)


def test_what_was_used_before_a_resume_counts() -> None:
    forecast = Forecast(100, Budget(generated_tokens=2_000), Spent(tokens=1_500))
    forecast.observe(step(61, 4.0, tokens=100))
    assert forecast.seconds_left() == pytest.approx(4 * 4.0)


def test_numbers_and_durations_as_people_read_them() -> None:
    row = {"a": None, "b": 12345, "c": 0.123456, "d": 0, "e": 123.456, "f": 98765.4}
    assert [number(row, key) for key in "abcdefg"] == ["-", "12,345", "0.123", "0", "123", "98,765", "-"]
    assert [duration(s) for s in (None, 4.25, 59.99, 60, 192, 3600, 18_420)] == [
        "-",
        "4.2s",
        "60.0s",
        "1m00s",
        "3m12s",
        "1h00m",
        "5h07m",
    ]


class Typed:
    """Keys that a test presses."""

    def __init__(self) -> None:
        self.typed = ""
        self.closed = False

    def pressed(self) -> str:
        typed, self.typed = self.typed, ""
        return typed

    def close(self) -> None:
        self.closed = True


def test_the_last_bundle_is_shown_when_asked_for_and_hidden_again() -> None:
    out, keys = terminal(True), Typed()
    console = LiveConsole(STREAMS, 3, Forecast(3), out, keys=keys)  # type: ignore[arg-type]
    one = bundle("p/1", (True, False), {"\x1b[31mred [bold]hint": (False, True)})
    console.bundle(rollout_records(one, groups_of(one), decode))
    console.phase("rollout")
    assert "right answer" not in text(out)
    keys.typed = "b"
    console.phase("judging")
    shown = text(out)
    facts = ("question p/1, right answer 7", "plain: correct, advantage +1.000", "tempted: wrong")
    for part in (*facts, "[31mred [bold]hint"):
        assert part in shown
    assert "\x1b[31m" not in shown, "no escape sequence of a model reaches the terminal"
    keys.typed = "xb"
    console.phase("sync")
    assert "right answer" not in text(out).split("sync")[-1]
    console.close()
    assert keys.closed


ECHO_KEYS = """
import sys, time
from megatron_seirenes.observe.keys import Keys
keys = Keys()
print("open", flush=True)
seen = ""
for _ in range(500):
    seen += keys.pressed()
    if seen.endswith("."):
        break
    time.sleep(0.01)
keys.close()
print(seen, flush=True)
"""


def test_keys_are_read_from_a_terminal_and_it_is_put_back() -> None:
    leader, follower = os.openpty()
    before = termios.tcgetattr(follower)
    child = subprocess.Popen(
        [sys.executable, "-c", ECHO_KEYS],
        stdin=follower,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    assert not termios.tcgetattr(follower)[3] & (termios.ECHO | termios.ICANON)
    os.write(leader, b"b.")
    assert child.communicate(timeout=30)[0] == "b.\n"
    assert termios.tcgetattr(follower) == before
    os.close(leader)
    os.close(follower)


def test_without_a_terminal_no_key_is_read() -> None:
    with open(os.devnull) as nothing:
        keys = Keys(nothing)
        assert keys.pressed() == ""
        keys.close()
