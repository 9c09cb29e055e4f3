"""What the sidecar's tests share: providers on loopback that record and misbehave, and a sidecar.

The sidecar is the real one: the same application, listeners and rooms as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from turnout_sidecar.app import build_app
from turnout_sidecar.listening import listen
from turnout_sidecar.service import Service

Behaviour = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
READY_TIMEOUT_S = 30.0


@dataclass
class Provider:
    """An OpenAI-like server that remembers what it was sent."""

    behaviour: Behaviour
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    cancelled: int = 0
    """Requests whose client went away before the answer was whole."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        self.raw.append(raw)
        self.paths.append(http.path_qs)
        self.headers.append({name.lower(): value for name, value in http.headers.items()})
        is_form = http.content_type == "multipart/form-data"
        body = {"form": raw} if is_form else json.loads(raw)
        self.bodies.append(body)
        try:
            return await self.behaviour(http, body)
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled += 1
            self.gone.set()
            raise


def completion(text: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
    }


def chunk(text: str) -> bytes:
    delta = {"role": "assistant", "content": text}
    row = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
    return b"data: " + json.dumps(row, ensure_ascii=False).encode() + b"\n\n"


def answering(text: str, pieces: int = 5) -> Behaviour:
    """Answers `text`, in `pieces` where a stream is asked for."""

    async def behave(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return web.json_response(completion(text))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        for number in range(pieces):
            await response.write(chunk(f"{text}{number} "))
        await response.write(b"data: [DONE]\n\n")
        return response

    return behave


def failing(status: int, headers: dict[str, str] | None = None, body: Any = None) -> Behaviour:
    async def behave(http: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        said = body or {"error": {"message": f"no ({status})", "type": "x", "code": "x"}}
        return web.json_response(said, status=status, headers=headers)

    return behave


async def hanging(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits so long")


@contextlib.asynccontextmanager
async def provider(behaviour: Behaviour) -> AsyncIterator[Provider]:
    it = Provider(behaviour)
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", it.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    it.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield it
    finally:
        await runner.cleanup()


@dataclass
class Sidecar:
    """A running sidecar in this process."""

    url: str
    socket: str
    service: Service


def write_rules(folder: Path, routes: str, upstreams: str, settings: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "routes.yaml").write_text(routes)
    (folder / "upstreams.yaml").write_text(upstreams)
    (folder / "turnout.yaml").write_text(settings + "\nclassifier: {kind: 'off'}\n")
    return folder


@contextlib.asynccontextmanager
async def sidecar(rules: Path, *, token: str = "") -> AsyncIterator[Sidecar]:
    """In this process, on a free port; its folders are the environment's."""
    service = Service(rules)
    path = Path(os.environ["TURNOUT_RUNTIME_DIR"]) / "s.sock"
    runner, listening = await listen(build_app(service, token=token), "127.0.0.1", 0, path)
    try:
        yield Sidecar(f"http://127.0.0.1:{listening.port}", listening.socket, service)
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def sidecar_process(
    rules: Path, folder: Path, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """`python -m turnout_sidecar` as a child; yields it and what its ready file says."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "turnout_sidecar", "--rules", str(rules), "--port", "0"]
    with (folder / "sidecar.log").open("ab") as log:
        child = subprocess.Popen(
            [*command, "--ready-file", str(ready), *arguments], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists():
            assert child.poll() is None, (folder / "sidecar.log").read_text()
            assert time.monotonic() < deadline, "the sidecar was not ready in time"
            time.sleep(0.05)
        yield child, json.loads(ready.read_text())
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
        child.wait()


async def eventually(holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.02)
