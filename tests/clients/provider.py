"""A stand-in provider: OpenAI's chat completions and Responses, Anthropic's messages, each streamed
event by event or whole, in the shapes that the real ones send.

It plays one small conversation. A request that offers the wanted tool is answered with a call of
it; one that brings the tool's result back gets the closing answer in two pieces, the second held
back until the client is known to have the first. Anything else is a side request (a title, a
summary) and gets a short text.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from clients.speakers import SPEAKERS, Call, Event, Speaker
from proxy_kit import Seen

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FIRST = "first-piece " + " ".join(f"{n} squared is {n * n};" for n in range(200))
"""The first half of the closing answer: more bytes than the headers of a response, and no words
that come again and again, which some clients take for a model that has run wild."""
SECOND = "second-piece"
RESULT = "marble 7391"
"""What the file that the tool reads holds; in a request, it is the tool's result."""
SIDE = '{"title": "Notes", "isNewTopic": false}'
GATE_TIMEOUT_S = 45.0


@dataclass
class Script:
    """What the stand-in says to the client under test, and what came of it."""

    call: Call | None = None
    """None: the client has no tools; its first main request gets the closing answer."""
    is_main: Callable[[Seen], bool] = lambda seen: True
    """Whether a request that offers no tool is the person's own, for clients without tools."""
    has_first_piece: Callable[[], bool] = lambda: False
    """Whether the client is known to hold the first piece."""
    opened: Callable[[], None] = lambda: None
    """Told right before the first piece is sent."""
    gates: list[bool] = field(default_factory=list)
    """Whether the first piece had arrived when the second was sent; empty: it was never sent."""
    called: list[str] = field(default_factory=list)
    """Ids of the tool calls asked for."""


def body_text(seen: Seen) -> str:
    """The request's body as text, decoded; the empty text if it is none."""
    encoding = seen.headers.get("content-encoding", "")
    body = seen.body
    if encoding == "zstd":
        body = zstd.decompress(body)
    elif encoding == "gzip":
        body = gzip.decompress(body)
    return body.decode("utf-8", "replace")


def offered_tools(body: dict[str, Any]) -> set[str]:
    """The names of the tools that a request of any of the three APIs offers."""
    found: set[str] = set()
    waiting = list(body.get("tools") or [])
    for item in body.get("input") if isinstance(body.get("input"), list) else []:
        if item.get("type") == "additional_tools":
            waiting += item.get("tools") or []
    while waiting:
        tool = waiting.pop()
        waiting += (tool.get("tools") or []) + (tool.get("functionDeclarations") or [])
        found.add(tool.get("function", {}).get("name") or tool.get("name", ""))
    return found


class StandIn:
    """The reply of an upstream (`proxy_kit.upstream`); `script` is changed from run to run."""

    def __init__(self) -> None:
        """Nothing to play yet."""
        self.script = Script()

    async def reply(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        """Answer one request in the format of the endpoint it came to."""
        path = request.path
        if request.method != "POST":
            return web.json_response({"object": "list", "data": []})
        try:
            body = json.loads(body_text(seen))
        except ValueError:
            return web.json_response({})
        for suffix, speaker in SPEAKERS.items():
            if path.endswith(suffix):
                return await self._speak(request, seen, body, speaker)
        return web.json_response({"input_tokens": 10})

    async def _speak(
        self, request: web.Request, seen: Seen, body: dict[str, Any], speaker: type[Speaker]
    ) -> web.StreamResponse:
        script = self.script
        says = speaker(body.get("model", "none"), body)
        says.is_streaming |= path_streams(request.path)
        has_result = RESULT in body_text(seen)
        if script.call and not has_result and script.call.tool in offered_tools(body):
            steps = says.call(script.call)
            script.called.append(says.call_id)
        elif has_result or (script.call is None and script.is_main(seen)):
            return await self._close(request, says)
        else:
            steps = says.text([SIDE])
        if not says.is_streaming:
            return web.json_response(says.whole(list(steps)))
        response = await _begin(request)
        for event in steps:
            await response.write(says.encode(event))
        await response.write(says.end)
        await response.write_eof()
        return response

    async def _close(self, request: web.Request, says: Speaker) -> web.StreamResponse:
        """The closing answer: one piece, the gate, the other."""
        steps = says.text([FIRST, SECOND])
        if not says.is_streaming:
            return web.json_response(says.whole(list(steps)))
        self.script.opened()
        response = await _begin(request)
        async for event in self._gated(steps):
            await response.write(says.encode(event))
        await response.write(says.end)
        await response.write_eof()
        return response

    async def _gated(self, steps: list[Event]) -> AsyncIterator[Event]:
        script = self.script
        for event in steps:
            if SECOND in json.dumps(event[1]) and not script.gates:
                deadline = time.monotonic() + GATE_TIMEOUT_S
                while not script.has_first_piece() and time.monotonic() < deadline:
                    await asyncio.sleep(0.02)
                script.gates.append(script.has_first_piece())
            yield event


def path_streams(path: str) -> bool:
    """Whether the path, not the body, asks for a stream."""
    return path.endswith(":streamGenerateContent")


async def _begin(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response
