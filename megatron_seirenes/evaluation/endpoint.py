"""A model behind an OpenAI-compatible endpoint, asked through the official client.

Every answer is appended to a cache file the moment it arrives, under a digest of what was asked (model, messages,
sampling, number of the sample); an answer that stands there is never asked for again, whoever ran before. Failed
requests are tried again by the client, with growing pauses and as the server's Retry-After says. The key comes from the
environment and stands in no file, log or message.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from megatron_seirenes.config.schema import EndpointSettings
from megatron_seirenes.errors import MissingComponentError, SeirenesError, UsageError
from megatron_seirenes.evaluation.identity import digest
from megatron_seirenes.roles.prompt import Message
from megatron_seirenes.rollouts.scheduler import CollectionStopped

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """One conversation to be answered; `sample` counts answers to the same conversation."""

    messages: tuple[Message, ...]
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `finish_reason` is the endpoint's own word, `length` when its limit cut the answer."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


class RateLimit:
    """Begins at most `per_minute` requests a minute, evenly spaced; None: any number. Safe between threads."""

    def __init__(self, per_minute: int | None, clock: Callable[[], float], sleep: Callable[[float], None]):
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._next = float("-inf")
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Returns when the next request may begin."""
        if not self._interval:
            return
        with self._lock:
            start = max(self._clock(), self._next)
            self._next = start + self._interval
        pause = start - self._clock()
        if pause > 0:
            self._sleep(pause)


class Endpoint:
    """Asks the endpoint of `settings`; answers are kept in `cache`. A context manager that closes the client.

    Raises UsageError when the key's variable is not set, MissingComponentError without the client.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        cache: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.settings = settings
        self.cache = cache
        self._key = _key(settings)
        self._client = _client(settings, self._key)
        self._limit = RateLimit(settings.requests_per_minute, clock, sleep)
        self._lock = threading.Lock()
        self._halted = False
        self._replies = _read_cache(cache)
        cache.parent.mkdir(parents=True, exist_ok=True)
        self.requests = 0

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def spent(self) -> float:
        """What every answer in the cache has cost, at the configured prices."""
        with self._lock:
            return sum(map(self._price, self._replies.values()))

    def answer(self, questions: Sequence[Question], should_stop: Callable[[], bool] = lambda: False) -> list[Reply]:
        """The answers in order, asking for those alone that are not in the cache.

        Raises SeirenesError when the endpoint refuses or `max_spend` is reached, CollectionStopped when told to stop;
        what had arrived until then is kept.
        """
        missing = {name: question for question in questions if (name := self._name(question)) not in self._replies}
        self._halted = False
        with ThreadPoolExecutor(self.settings.parallel) as pool:
            asked = [pool.submit(self._ask, name, question, should_stop) for name, question in missing.items()]
            failures = [error for one in asked if (error := one.exception()) is not None]
        if failures:
            raise failures[0]
        return [self._replies[self._name(question)] for question in questions]

    def _name(self, question: Question) -> str:
        return digest([json.dumps([self._parameters(question), question.sample], sort_keys=True)])

    def _parameters(self, question: Question) -> dict[str, Any]:
        settings = self.settings
        sampling = {"temperature": settings.temperature, "top_p": settings.top_p}
        return {
            "model": settings.model,
            "messages": list(question.messages),
            settings.token_limit_name: settings.max_tokens,
            **{name: value for name, value in sampling.items() if value is not None},
        }

    def _ask(self, name: str, question: Question, should_stop: Callable[[], bool]) -> None:
        """Asks, keeps the answer; the first failure keeps the others from beginning."""
        if self._halted:
            return
        try:
            self._limit.wait()
            self._may_go_on(should_stop)
            self._keep(name, question, self._request(question))
        except BaseException:
            self._halted = True
            raise

    def _may_go_on(self, should_stop: Callable[[], bool]) -> None:
        if should_stop():
            raise CollectionStopped("stopped between two requests")
        limit = self.settings.max_spend
        if limit is not None and self.spent >= limit:
            raise SeirenesError(
                f"max_spend: {self.spent:.4f} of {limit} is spent on {self.settings.model}; every answer is kept in "
                f"{self.cache}: raise the limit and run again"
            )

    def _request(self, question: Question) -> Reply:
        import openai

        with self._lock:
            self.requests += 1
        try:
            response = self._client.chat.completions.create(**self._parameters(question))
        except openai.OpenAIError as error:
            reason = " ".join(str(error).replace(self._key, "***").split())[:500]
            raise SeirenesError(
                f"{self.settings.model} at {self._client.base_url}: {type(error).__name__}: {reason}; "
                f"what was answered is kept in {self.cache}, the same command goes on"
            ) from None
        choice, usage = response.choices[0], response.usage
        return Reply(
            text=choice.message.content or "",
            finish_reason=str(choice.finish_reason),
            prompt_tokens=usage.prompt_tokens if usage else 0,
            completion_tokens=usage.completion_tokens if usage else 0,
        )

    def _keep(self, name: str, question: Question, reply: Reply) -> None:
        record = {"key": name, **self._parameters(question), "sample": question.sample, "reply": asdict(reply)}
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        with self._lock:
            with self.cache.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._replies[name] = reply

    def _price(self, reply: Reply) -> float:
        settings = self.settings
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        return (prompt * settings.price_input + completion * settings.price_output) / MILLION


def _key(settings: EndpointSettings) -> str:
    """The key from the environment; a word that stands for none where the endpoint wants none."""
    if settings.key_variable is None:
        return "no-key-needed"
    key = os.environ.get(settings.key_variable)
    if not key:
        raise UsageError(
            f"endpoint {settings.model}: the environment variable {settings.key_variable} holds no key; set it, or set "
            "key_variable to null for an endpoint that wants none"
        )
    return key


def _client(settings: EndpointSettings, key: str) -> Any:
    try:
        import openai
    except ImportError:
        raise MissingComponentError("an endpoint is asked through the package openai: pip install openai") from None
    return openai.OpenAI(
        api_key=key, base_url=settings.base_url, timeout=settings.timeout_seconds, max_retries=settings.retries
    )


def _read_cache(path: Path) -> dict[str, Reply]:
    """The answers of the cache; a line that a kill cut off is cut off for good."""
    if not path.exists():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    records = (json.loads(line) for line in whole.splitlines())
    return {record["key"]: Reply(**record["reply"]) for record in records}
