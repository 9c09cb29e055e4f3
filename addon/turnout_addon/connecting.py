"""Connections to upstreams: none is waited for without end, and a failed one is told in JSON.

mitmproxy dials without a deadline and answers a failure with a page for browsers. Its hooks can
change neither, so the deadline cancels the dialling task, and the page is put in its place here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from mitmproxy import connection, http
from mitmproxy.net.http import http1
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.server import ConnectionHandler

CONNECT_TIMEOUT_S = 10.0
_MAX_CONNECTIONS = 1_024
_CANCELLED = "connection cancelled"
_handle_to_the_end = ConnectionHandler.handle_connection
_KINDS = dict.fromkeys((400, 413, 431), "invalid_request_error")


class ConnectDeadlines:
    """One timer for each connection that is being made; hooks start and stop them."""

    def __init__(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Nothing is dialled yet."""
        self._timeout_s = timeout_s
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def begin(self, server: connection.Server) -> None:
        """From the hook before dialling, which runs in the task that will dial."""
        task = asyncio.current_task()
        if task is not None:
            loop = asyncio.get_running_loop()
            self._timers[server.id] = loop.call_later(self._timeout_s, task.cancel)

    def end(self, server: connection.Server) -> None:
        """It is connected, or has failed."""
        if timer := self._timers.pop(server.id, None):
            timer.cancel()


def lift_connection_limit(handler: ConnectionHandler | None) -> None:
    """Of five upstream connections a client connection, which would queue HTTP/2's streams."""
    if handler is not None:
        handler.max_conns.default_factory = lambda: asyncio.Semaphore(_MAX_CONNECTIONS)


def cut_connection(
    server: Any, client: connection.Client, upstream: connection.Server | None = None
) -> None:
    """Close a client's connection, or one to an upstream; `server`: mitmproxy's proxyserver."""
    handler = server.connections.get(client.id) if server else None
    transports = handler.transports if handler is not None else {}
    if (io := transports.get(upstream or client)) is not None and io.writer is not None:
        io.writer.close()


def close_sockets() -> None:
    """Close a connection's socket however its task ends; calling it again changes nothing.

    mitmproxy leaves it open where the task is cancelled while it waits for the layers' lock: the
    client would wait for ever.
    """
    ConnectionHandler.handle_connection = _handle_connection  # type: ignore[method-assign]


async def _handle_connection(self: ConnectionHandler, connection: connection.Connection) -> None:
    writer = self.transports[connection].writer
    try:
        await _handle_to_the_end(self, connection)
    finally:
        if writer is not None and not writer.is_closing():
            with contextlib.suppress(OSError):
                writer.close()


def error_body(status_code: int, message: str) -> bytes:
    """An error that OpenAI's and Anthropic's clients read alike."""
    if message == _CANCELLED:
        message = f"no connection within {CONNECT_TIMEOUT_S:g} s"
    error = {
        "message": f"turnout: {message}",
        "type": _KINDS.get(status_code, "api_error"),
        "param": None,
        "code": "upstream_unreachable" if status_code == 502 else "bad_exchange",
    }
    return json.dumps({"type": "error", "error": error}, ensure_ascii=False).encode()


def _error_response(status_code: int, message: str = "") -> bytes:
    headers = http.Headers(Connection="close", Content_Type="application/json")
    response = http.Response.make(status_code, error_body(status_code, message), headers)
    raw: bytes = http1.assemble_response(response)
    return raw


def speak_json() -> None:
    """Replace mitmproxy's error page for HTTP/1 and HTTP/2; calling it again changes nothing."""
    _http1.make_error_response = _error_response
    _http2.format_error = error_body  # type: ignore[attr-defined]
