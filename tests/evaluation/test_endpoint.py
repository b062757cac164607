"""The endpoint client against a server on the loopback address: cache, retries, limits, spend, secrecy, resumption."""

from __future__ import annotations

import json
import threading

import pytest
from loopback_endpoint import asked, serve

from megatron_seirenes.config.schema import Config, DistractorSettings, EndpointSettings
from megatron_seirenes.errors import SeirenesError, StoppedBySignal, UsageError
from megatron_seirenes.evaluation.distractors import endpoint_hints, make_endpoint_distractors
from megatron_seirenes.evaluation.endpoint import Endpoint, Question, RateLimit
from megatron_seirenes.records import Problem
from megatron_seirenes.rollouts.scheduler import CollectionStopped

KEY = "sk-very-secret-123"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)


def settings(base_url: str, **more) -> EndpointSettings:
    base = {"model": "m", "base_url": base_url, "key_variable": "TEST_KEY", "retries": 3, "timeout_seconds": 20.0}
    return EndpointSettings(**base | more)


def question(text: str, sample: int = 0) -> Question:
    return Question(({"role": "user", "content": text},), sample)


def texts(replies) -> list[str]:
    return [reply.text for reply in replies]


def echo(request):
    return f"<{asked(request)}>"


def test_answers_in_order_and_never_twice(tmp_path):
    wanted = [question(f"q{n}", sample) for n in range(5) for sample in range(2)]
    with serve(echo) as server:
        chosen = settings(server.base_url, temperature=0.5, max_tokens=7, token_limit_name="max_completion_tokens")
        with Endpoint(chosen, tmp_path / "c.jsonl") as endpoint:
            assert texts(endpoint.answer(wanted)) == [f"<q{n}>" for n in range(5) for _ in range(2)]
            endpoint.answer(wanted)
        with Endpoint(chosen, tmp_path / "c.jsonl") as again:
            assert texts(again.answer([*wanted, question("new")]))[-1] == "<new>"
            assert again.requests == 1
        assert len(server.requests) == 11
        assert server.requests[0]["temperature"] == 0.5 and server.requests[0]["max_completion_tokens"] == 7
        assert "top_p" not in server.requests[0] and "max_tokens" not in server.requests[0]
        assert set(server.keys) == {f"Bearer {KEY}"}


def test_another_model_or_sampling_is_another_question(tmp_path):
    with serve(echo) as server:
        for change in ({}, {"model": "n"}, {"temperature": 0.1}, {"max_tokens": 5}, {}):
            with Endpoint(settings(server.base_url, **change), tmp_path / "c.jsonl") as endpoint:
                endpoint.answer([question("q")])
        assert len(server.requests) == 4


def test_what_fails_for_a_while_is_tried_again(tmp_path):
    turns = iter([(429, {"retry-after-ms": "5"}), (500, {"retry-after-ms": "5"}), (503, {"retry-after-ms": "5"})])
    with serve(lambda request: next(turns, "fine")) as server:
        with Endpoint(settings(server.base_url), tmp_path / "c.jsonl") as endpoint:
            assert texts(endpoint.answer([question("q")])) == ["fine"]
        assert len(server.requests) == 4


def test_what_fails_for_good_is_a_message_without_the_key_and_keeps_what_came(tmp_path):
    def answer(request):
        return (400, {}) if asked(request) == "bad" else "fine"

    with serve(answer) as server:
        with Endpoint(settings(server.base_url, parallel=1), tmp_path / "c.jsonl") as endpoint:
            with pytest.raises(SeirenesError) as caught:
                endpoint.answer([question("a"), question("bad"), question("never asked")])
        assert len(server.requests) == 2
    message = str(caught.value)
    assert "m at http://127.0.0.1" in message and "BadRequestError" in message and "the same command goes on" in message
    assert KEY not in message and "***" in message
    assert all(KEY not in file.read_text() for file in tmp_path.iterdir())
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 1


def test_a_missing_key_is_named_and_none_may_be_needed(tmp_path, monkeypatch):
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(UsageError, match="the environment variable TEST_KEY holds no key"):
        Endpoint(settings("http://127.0.0.1:1/v1"), tmp_path / "c.jsonl")
    with (
        serve(echo) as server,
        Endpoint(settings(server.base_url, key_variable=None), tmp_path / "c.jsonl") as endpoint,
    ):
        assert texts(endpoint.answer([question("q")])) == ["<q>"]


def test_spend_is_counted_over_runs_and_ends_the_asking(tmp_path):
    """100 prompt tokens at 10 and 10 response tokens at 50 a million: 0.0015 a request."""
    wanted = [question(f"q{n}") for n in range(5)]
    with serve(echo) as server:
        prices = {"price_input": 10.0, "price_output": 50.0, "parallel": 1}
        with Endpoint(settings(server.base_url, **prices, max_spend=0.003), tmp_path / "c.jsonl") as endpoint:
            with pytest.raises(SeirenesError, match=r"max_spend: 0.0030 of 0.003 is spent on m"):
                endpoint.answer(wanted)
        assert len(server.requests) == 2
        with Endpoint(settings(server.base_url, **prices), tmp_path / "c.jsonl") as endpoint:
            assert endpoint.spent == pytest.approx(0.003)
            endpoint.answer(wanted)
            assert endpoint.spent == pytest.approx(5 * 0.0015)
        assert len(server.requests) == 5


def test_told_to_stop_it_begins_no_request(tmp_path):
    stop = threading.Event()

    def answer(request):
        stop.set()
        return "fine"

    wanted = [question(f"q{n}") for n in range(4)]
    with serve(answer) as server:
        with Endpoint(settings(server.base_url, parallel=1), tmp_path / "c.jsonl") as endpoint:
            with pytest.raises(CollectionStopped):
                endpoint.answer(wanted, stop.is_set)
        assert len(server.requests) == 1
        with Endpoint(settings(server.base_url), tmp_path / "c.jsonl") as endpoint:
            assert texts(endpoint.answer(wanted)) == ["fine"] * 4
        assert sorted(map(asked, server.requests)) == ["q0", "q1", "q2", "q3"]


def test_a_cache_line_that_was_cut_off_is_asked_again(tmp_path):
    cache = tmp_path / "c.jsonl"
    with serve(echo) as server:
        with Endpoint(settings(server.base_url, parallel=1), cache) as endpoint:
            endpoint.answer([question("a"), question("b")])
        content = cache.read_bytes()
        cache.write_bytes(content[:-3])
        with Endpoint(settings(server.base_url), cache) as endpoint:
            assert texts(endpoint.answer([question("a"), question("b")])) == ["<a>", "<b>"]
            assert endpoint.requests == 1
    assert [json.loads(line)["messages"][0]["content"] for line in cache.read_text().splitlines()] == ["a", "b"]


def test_requests_begin_evenly_spaced():
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    limit = RateLimit(120, lambda: now[0], sleep)
    for _ in range(3):
        limit.wait()
    assert pauses == [0.5, 0.5]
    now[0] += 10
    limit.wait()
    assert pauses == [0.5, 0.5]
    RateLimit(None, lambda: now[0], sleep).wait()
    assert pauses == [0.5, 0.5]


# -- distractors made by an endpoint


def test_distractors_are_made_once_and_kept(tmp_path):
    problems = [Problem(f"p/{n}", f"question {n}", "1") for n in range(3)]
    with serve(lambda request: f" about {asked(request)} ") as server:
        made = DistractorSettings(kind="endpoint", path=str(tmp_path / "d.jsonl"), endpoint=settings(server.base_url))
        hints = endpoint_hints(made, problems[:2])
        assert hints == {"p/0": "about question 0", "p/1": "about question 1"}
        assert "irrelevant to the answer" in server.requests[0]["messages"][0]["content"]
        assert endpoint_hints(made, problems) == hints | {"p/2": "about question 2"}
        assert len(server.requests) == 3
    assert endpoint_hints(made, problems) == hints | {"p/2": "about question 2"}, "with the file no endpoint is needed"


def test_an_empty_distractor_is_refused(tmp_path):
    with serve(lambda request: " ") as server:
        made = DistractorSettings(kind="endpoint", path=str(tmp_path / "d.jsonl"), endpoint=settings(server.base_url))
        with pytest.raises(SeirenesError, match=r"m: an empty distractor for p/0 \(1 in all\)"):
            endpoint_hints(made, [Problem("p/0", "q", "1")])
    assert not (tmp_path / "d.jsonl").exists()


def test_what_training_needs_of_endpoints_is_made_before_it_and_a_stop_keeps_what_came(tmp_path):
    (tmp_path / "q.jsonl").write_text("".join(f'{{"question": "q{n}", "answer": "1"}}\n' for n in range(4)))
    stop = threading.Event()

    def answer(request):
        if len(server.requests) == 2:
            stop.set()
        return "a paragraph"

    with serve(answer) as server:
        distractors = {"kind": "endpoint", "path": str(tmp_path / "d.jsonl")}
        distractors["endpoint"] = settings(server.base_url, parallel=1).model_dump()
        questions = {"path": str(tmp_path / "q.jsonl")}
        benchmarks = {"plain": {"problems": questions}, "b": {"problems": questions, "distractors": distractors}}
        config = Config.model_validate({"evaluation": {"benchmarks": benchmarks}})
        with pytest.raises(StoppedBySignal):
            make_endpoint_distractors(config, stop.is_set)
        make_endpoint_distractors(config, lambda: False)
        make_endpoint_distractors(config, lambda: False)
        assert len(server.requests) == 4
    assert (tmp_path / "d.jsonl").read_text().count("a paragraph") == 4
