"""Streamed replies for the recording upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web

from proxy_kit import Reply, Seen


def sse(chunks: Iterable[bytes], *, pause_s: float = 0.0) -> Reply:
    """Send the chunks one by one, then the end mark."""
    kept = list(chunks)

    async def reply(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for chunk in kept:
            await response.write(chunk)
            if pause_s:
                await asyncio.sleep(pause_s)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    return reply
