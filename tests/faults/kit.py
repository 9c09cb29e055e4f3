"""The set-up of the fault runs: `turnout up`, a provider that misbehaves on request, and meters.

The provider is asked by the request's last words what to do, so one address serves every fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
from aiohttp import web

from proxy_kit import Seen, Upstream, say_ok, upstream, write_rules
from up_kit import Up, up

MIB = 1024 * 1024
PATH = "/v1/chat/completions"
ROUTES = """
routes:
  - {name: blocked, match: [forbidden], priority: 9, target: block}
  - {name: fallen, match: [fallback], priority: 8, target: far/model, fallback: [far/other]}
  - {name: rest, match: [.*], target: far/model}
"""
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'


async def misbehave(request: web.Request, seen: Seen) -> web.StreamResponse:
    """What the words of the request ask for; a plain answer by default."""
    words = seen.body[-200:]
    if b"never answer" in words:
        await _until_closed(request)
    if b"long line" in words:
        return await _stream(request, [b"data: " + b"x" * MIB] * 100)
    if b"endless" in words:
        return await _stream(request, [CHUNK] * 1_000_000)
    if b"long stream" in words:
        return await _stream(request, [CHUNK] * 50, pause_s=0.1)
    return await say_ok(request, seen)


async def _until_closed(request: web.Request) -> None:
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.1)


async def _stream(
    request: web.Request, chunks: list[bytes], pause_s: float = 0.0
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
        await asyncio.sleep(pause_s)
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


@dataclass
class Box:
    """One running instance under test."""

    up: Up
    far: Upstream
    rules: Path

    def base(self, listener: str) -> str:
        """The base URL of `proxy`, `base_url` or `sidecar` (the gateway)."""
        return f"http://127.0.0.1:{self.up.record[f'{listener}_port']}"

    def ask(
        self, words: str = "hello", listener: str = "base_url", timeout_s: float = 20.0, **more: Any
    ) -> httpx2.Response:
        """One request; `more` goes to the client."""
        with httpx2.Client(trust_env=False, timeout=timeout_s) as client:
            return client.post(self.base(listener) + PATH, **{"json": body(words), **more})

    def check(self, within_s: float = 10.0) -> float:
        """Every listener still serves, each within `within_s`; the slowest, in seconds."""
        slowest = 0.0
        for listener in ("base_url", "sidecar"):
            began = time.monotonic()
            answer = self.ask(listener=listener, timeout_s=within_s)
            assert answer.status_code == 200, (listener, answer.status_code, answer.text[:300])
            slowest = max(slowest, time.monotonic() - began)
        return slowest

    def planes(self) -> dict[str, psutil.Process]:
        """Both child processes, by name."""
        return {n: self.up.plane(f"turnout_{n}") for n in ("addon", "sidecar")}

    def memory_mib(self) -> dict[str, float]:
        """Resident memory of both planes."""
        return {name: p.memory_info().rss / MIB for name, p in self.planes().items()}

    def descriptors(self) -> dict[str, int]:
        """Open file descriptors of both planes."""
        return {name: p.num_fds() for name, p in self.planes().items()}


@contextlib.contextmanager
def box(folder: Path, *, settings: str = "", is_lean: bool = True) -> Iterator[Box]:
    """An instance with rules of its own."""
    with upstream(misbehave) as far:
        upstreams = f'upstreams: {{far: {{base_url: "{far.url}/v1"}}}}\n'
        turnout = (
            f"proxy: {{origin: '{far.url}', intercept: [llm.example]}}\n"
            f"classifier: {{kind: 'off'}}\n{settings}"
        )
        rules = write_rules(folder / "rules", routes=ROUTES, upstreams=upstreams, turnout=turnout)
        with up(folder / "up", rules, is_lean=is_lean) as running:
            made = Box(running, far, rules)
            made.check(30)
            yield made


def body(words: str, **more: Any) -> dict[str, Any]:
    """A chat body."""
    return {"model": "m", "messages": [{"role": "user", "content": words}], **more}


def raw(listener: str, payload: bytes, extra: str = "") -> bytes:
    """A request as bytes."""
    head = f"POST {PATH} HTTP/1.1\r\nhost: {listener}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(payload)}\r\n{extra}\r\n".encode() + payload


def encoded(words: str, **more: Any) -> bytes:
    """A chat body's bytes."""
    return json.dumps(body(words, **more)).encode()


class Peak:
    """The highest resident memory of both planes while the block runs, over what it was before."""

    def __init__(self, of: Box) -> None:
        self._planes = of.planes()
        self._before = {n: p.memory_info().rss for n, p in self._planes.items()}
        self._highest = dict(self._before)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def __str__(self) -> str:
        return ", ".join(
            f"{'proxy' if n == 'addon' else n} {self._before[n] / MIB:.0f} → "
            f"{highest / MIB:.0f} MiB"
            for n, highest in self._highest.items()
        )

    def rise_mib(self) -> float:
        """The larger rise of the two."""
        return max((self._highest[n] - self._before[n]) / MIB for n in self._before)

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            for name, process in self._planes.items():
                with contextlib.suppress(psutil.Error):
                    rss = process.memory_info().rss
                    self._highest[name] = max(self._highest[name], rss)
