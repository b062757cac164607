"""A real vLLM server on the loopback address, of the tiny policy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from tiny_policy import make_policy

PACKAGES = {
    "uvicorn": "uvicorn",
    "click": "click",
    "httptools": "httptools",
    "watchfiles": "watchfiles",
    "prometheus_fastapi_instrumentator": "prometheus-fastapi-instrumentator",
    "model_hosting_container_standards": "model-hosting-container-standards",
}
"""What vLLM's server imports beyond its engine, by module."""
PATIENCE = 600.0
NAME = "tiny"


def missing_packages() -> list[str]:
    """What has to be installed before a server can start."""
    return [package for module, package in PACKAGES.items() if find_spec(module) is None]


class VLLMServer:
    """A server that runs. `log` is its output, the access log included."""

    def __init__(self, port: int, log: Path):
        self.log = log
        self._base = f"http://127.0.0.1:{port}"

    def is_healthy(self) -> bool:
        try:
            return urlopen(f"{self._base}/health", timeout=10).status == 200
        except (URLError, ConnectionError, TimeoutError):
            return False

    def complete(self, body: bytes) -> bytes:
        """The answer to a chat completion, as it comes."""
        request = Request(f"{self._base}/v1/chat/completions", body, {"Content-Type": "application/json"})
        return urlopen(request, timeout=PATIENCE).read()

    def completions(self) -> int:
        """How many chat completions the server says that it answered."""
        return self.log.read_text(errors="replace").count('"POST /v1/chat/completions HTTP/1.1" 200')


@contextmanager
def vllm_server(folder: Path) -> Iterator[VLLMServer]:
    """Serves a model made in `folder` under `NAME`; returns when the server answers, ends it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = make_policy(folder / "model")
    server = VLLMServer(port, folder / "server.log")
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "128", "--enforce-eager", "--kv-cache-memory-bytes", str(1 << 24)]
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}
    with server.log.open("w") as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(server, process)
        yield server
    finally:
        process.terminate()
        process.wait(60)


def _wait(server: VLLMServer, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while not server.is_healthy():
        assert process.poll() is None and time.monotonic() < end, server.log.read_text(errors="replace")[-3000:]
        time.sleep(1.0)
