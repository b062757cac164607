"""A small HTTP server on the loopback address that speaks the chat-completions protocol and can misbehave on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Request = dict[str, Any]


Answer = str | bytes | tuple[int, dict[str, str]]
PATIENCE = 300.0


class Loopback:
    """Answers with what `answer` makes of a request: a text, a whole body, or a (status, headers) pair of a failure.

    Every request is kept. The one that `hold_at` numbers, from 1, tells `held` that it is here and waits for `go_on`.
    """

    def __init__(self, answer: Callable[[Request], Answer]):
        self.answer = answer
        self.requests: list[Request] = []
        self.keys: list[str | None] = []
        self.lock = threading.Lock()
        self.base_url = ""
        self.hold_at: int | None = None
        self.held = threading.Event()
        self.go_on = threading.Event()

    def hold(self, number: int) -> None:
        """Holds the request of this number when it comes."""
        self.held.clear()
        self.go_on.clear()
        self.hold_at = number

    def handle(self, request: Request, key: str | None) -> tuple[int, dict[str, str], bytes]:
        with self.lock:
            self.requests.append(request)
            self.keys.append(key)
            is_held = len(self.requests) == self.hold_at
        if is_held:
            self.held.set()
            self.go_on.wait(PATIENCE)
        answer = self.answer(request)
        if isinstance(answer, tuple):
            status, headers = answer
            return status, headers, json.dumps({"error": {"message": f"bad luck with {key}"}}).encode()
        return 200, {}, answer if isinstance(answer, bytes) else _completion(request, answer)


def _completion(request: Request, text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"]}
    return json.dumps(body | {"choices": choices, "usage": usage}).encode()


@contextmanager
def serve(answer: Callable[[Request], Answer]) -> Iterator[Loopback]:
    loopback = Loopback(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, body = loopback.handle(request, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in (
                headers | {"Content-Type": "application/json", "Content-Length": str(len(body))}
            ).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            with suppress(ConnectionError):  # whoever asked may have been killed
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    loopback.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield loopback
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(request: Request) -> str:
    """The user's turn."""
    return request["messages"][-1]["content"]
