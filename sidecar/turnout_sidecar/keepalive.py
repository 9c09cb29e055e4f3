"""Keeping a client's stream alive while nothing has been answered yet.

A stream that waits longer than `keepalive_s` gets its response headers and, from then on, an SSE
comment in each interval, so that no load balancer cuts it. The price: the status is 200 by then,
and a later failure reaches the client as an SSE error event. It never sends content of its own but
the optional loading note.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Mapping

from aiohttp import web

COMMENT = b": keep-alive\n\n"


class WaitingClient:
    """One client that waits. `response` is None until something had to be sent."""

    def __init__(
        self,
        http: web.Request,
        *,
        endpoint: str,
        is_stream: bool,
        interval_s: float,
        headers: Mapping[str, str],
        wants_note: bool = False,
    ) -> None:
        """Nothing is sent unless `is_stream` and an interval passes."""
        self._http = http
        self._endpoint = endpoint
        self._is_stream = is_stream
        self._interval_s = interval_s if interval_s > 0 else None
        self._headers = headers
        self._wants_note = wants_note and endpoint == "chat"
        self.note = ""
        """What the wait is for, set by whoever knows; sent once if the settings allow."""
        self.response: web.StreamResponse | None = None
        self.comments = 0

    async def until[T](self, work: Coroutine[None, None, T]) -> T:
        """The result of `work`, the client kept alive meanwhile; cancelling cancels `work`."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._interval_s if self._is_stream else None)
                if not task.done():
                    await self._send_comment()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_comment(self) -> None:
        if self.response is None:
            headers = {**self._headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
            self.response = web.StreamResponse(status=200, headers=headers)
            self.response.content_type = "text/event-stream"
            await self.response.prepare(self._http)
        if self._wants_note and self.note:
            await self.response.write(_loading_note(self.note))
            self._wants_note = False
        else:
            await self.response.write(COMMENT)
        self.comments += 1


def _loading_note(note: str) -> bytes:
    """A chat chunk whose reasoning, which clients show apart from the answer, says `note`."""
    delta = {"role": "assistant", "content": "", "reasoning_content": f"{note}\n"}
    chunk = {
        "id": "chatcmpl-turnout-waiting",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": "turnout",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
