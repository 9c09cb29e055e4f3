"""Requests that do not arrive: a client has so long for its first head, and for each body.

mitmproxy waits ten minutes, and for ever if a byte trickles in now and then. Decides nothing about
requests that have arrived, and leaves tunnels alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mitmproxy import connection, http

HEAD_S = 75.0
"""As long as the gateway's server (aiohttp's keep-alive default) waits for the next head."""
BODY_S = 60.0
"""As long as the gateway waits for a body."""


class ArrivalDeadlines:
    """One timer for each connection or flow that has yet to bring something; hooks tell of them."""

    def __init__(
        self,
        cut: Callable[[connection.Client], None],
        *,
        head_s: float = HEAD_S,
        body_s: float = BODY_S,
    ) -> None:
        """`cut` closes a client's connection."""
        self._cut = cut
        self._head_s = head_s
        self._body_s = body_s
        self._heads: dict[str, asyncio.TimerHandle] = {}
        self._bodies: dict[str, tuple[str, asyncio.TimerHandle]] = {}

    def connected(self, client: connection.Client) -> None:
        """A connection waits for its first request, or a tunnel for the first inside."""
        self._stop_head(client)
        loop = asyncio.get_running_loop()
        self._heads[client.id] = loop.call_later(self._head_s, self._cut, client)

    def tunnelled(self, client: connection.Client) -> None:
        """What comes now is none of our business."""
        self._stop_head(client)

    def begun(self, flow: http.HTTPFlow) -> None:
        """A request's head has come; its body is waited for."""
        client = flow.client_conn
        self._stop_head(client)
        timer = asyncio.get_running_loop().call_later(self._body_s, self._cut, client)
        self._bodies[flow.id] = (client.id, timer)

    def arrived(self, flow: http.HTTPFlow) -> None:
        """The request is whole, has come to nothing, or its body streams on as it comes."""
        if found := self._bodies.pop(flow.id, None):
            found[1].cancel()

    def gone(self, client: connection.Client) -> None:
        """The connection has ended."""
        self._stop_head(client)
        for flow_id in [f for f, (owner, _) in self._bodies.items() if owner == client.id]:
            self._bodies.pop(flow_id)[1].cancel()

    def _stop_head(self, client: connection.Client) -> None:
        if timer := self._heads.pop(client.id, None):
            timer.cancel()
