"""The local engines over HTTP: list, start, stop, read the log. Thin over `Backends`.

Starting and stopping go through the same loop as traffic does, so they obey the same limits.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from aiohttp import web

from turnout_sidecar.backends import Backends, Refused
from turnout_sidecar.gateway import plain_error

DEFAULT_LOG_LINES = 200
MAX_LOG_LINES = 10_000


class BackendApi:
    """Handlers around `Backends`."""

    def __init__(self, backends: Backends) -> None:
        """Stateless but for the backends."""
        self._backends = backends
        # Starts and stops under way, which outlive a client that leaves.
        self._under_way: set[asyncio.Task[None]] = set()

    async def list_all(self, http: web.Request) -> web.StreamResponse:
        """`GET /backends`."""
        return web.json_response({"backends": backend_rows(self._backends)})

    async def start(self, http: web.Request) -> web.StreamResponse:
        """`POST /backends/{name}/start`."""
        return await self._carry_out(http, "start")

    async def stop(self, http: web.Request) -> web.StreamResponse:
        """`POST /backends/{name}/stop`."""
        return await self._carry_out(http, "stop")

    async def logs(self, http: web.Request) -> web.StreamResponse:
        """`GET /backends/{name}/logs?lines=N&follow=1`, plain text."""
        name = http.match_info["name"]
        try:
            lines = max(0, min(int(http.query.get("lines", DEFAULT_LOG_LINES)), MAX_LOG_LINES))
        except ValueError:
            return plain_error(400, "bad_query", "lines must be a number")
        if not self._is_known(name):
            return self._unknown(name)
        text = "".join(f"{line}\n" for line in self._backends.logs(name, lines))
        if http.query.get("follow") not in ("1", "true"):
            return web.Response(text=text)
        response = web.StreamResponse(headers={"cache-control": "no-cache"})
        response.content_type = "text/plain"
        response.charset = "utf-8"
        await response.prepare(http)
        await response.write(text.encode("utf-8", "replace"))
        with contextlib.suppress(ConnectionResetError):
            async for line in self._backends.follow_logs(name):
                await response.write(f"{line}\n".encode("utf-8", "replace"))
        return response

    async def _carry_out(self, http: web.Request, what: str) -> web.StreamResponse:
        name = http.match_info["name"]
        if not self._is_known(name):
            return self._unknown(name)
        act = self._backends.start_backend if what == "start" else self._backends.stop_backend
        task = asyncio.create_task(act(name))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            await asyncio.shield(task)
        except Refused as refused:
            return plain_error(refused.status, refused.code, refused.message)
        return web.json_response({"backends": backend_rows(self._backends)})

    def _is_known(self, name: str) -> bool:
        return any(row.get("name") == name for row in backend_rows(self._backends))

    def _unknown(self, name: str) -> web.Response:
        names = ", ".join(str(row.get("name")) for row in backend_rows(self._backends)) or "none"
        return plain_error(404, "unknown_backend", f"no backend {name!r}; there are: {names}")


def backend_rows(backends: Backends) -> list[dict[str, Any]]:
    """`Backends.status()` as JSON rows."""
    rows: list[dict[str, Any]] = msgspec.to_builtins(list(backends.status()))
    return rows
