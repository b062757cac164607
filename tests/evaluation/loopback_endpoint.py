"""A small HTTP server on the loopback address that speaks the chat-completions protocol and can misbehave on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Request = dict[str, Any]


class Loopback:
    """`answer` makes a text of a request, or a (status, headers) pair that is sent instead. Every request is kept."""

    def __init__(self, answer: Callable[[Request], str | tuple[int, dict[str, str]]]):
        self.answer = answer
        self.requests: list[Request] = []
        self.keys: list[str | None] = []
        self.lock = threading.Lock()
        self.base_url = ""

    def handle(self, request: Request, key: str | None) -> tuple[int, dict[str, str], bytes]:
        with self.lock:
            self.requests.append(request)
            self.keys.append(key)
            answer = self.answer(request)
        if isinstance(answer, tuple):
            status, headers = answer
            return status, headers, json.dumps({"error": {"message": f"bad luck with {key}"}}).encode()
        message = {"role": "assistant", "content": answer}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": request["model"]}
        return 200, {}, json.dumps(body | {"choices": choices, "usage": usage}).encode()


@contextmanager
def serve(answer: Callable[[Request], str | tuple[int, dict[str, str]]]) -> Iterator[Loopback]:
    loopback = Loopback(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, body = loopback.handle(request, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in (headers | {"Content-Type": "application/json", "Content-Length": len(body)}).items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

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
