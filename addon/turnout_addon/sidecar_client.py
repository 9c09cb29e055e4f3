"""Asks the sidecar: what does the classifier say, is the gateway there.

Every wait has a deadline, and a breaker keeps a dead sidecar from costing each request one. A
failure is never an exception here: it is a verdict without a route that says why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp
import msgspec

from turnout_addon.hosts import Origin
from turnout_addon.metrics import Metrics
from turnout_rules.decision import Verdict

GATEWAY_PROBE_TIMEOUT_S = 0.5


class Breaker:
    """Opens after `failures` in a row; then one call a `rest_s` is let through until one works."""

    def __init__(self, *, failures: int = 3, rest_s: float = 2.0) -> None:
        """Closed at first."""
        self._limit = failures
        self._rest_s = rest_s
        self._failures = 0
        self._closed_until = 0.0

    def allows(self, now: float) -> bool:
        """Whether a call may go out; an allowed call while open is the probe of its period."""
        if self._failures < self._limit:
            return True
        if now < self._closed_until:
            return False
        self._closed_until = now + self._rest_s
        return True

    def failed(self, now: float) -> None:
        """Count a failure."""
        self._failures += 1
        if self._failures >= self._limit:
            self._closed_until = now + self._rest_s

    def succeeded(self) -> None:
        """Close."""
        self._failures = 0


class _Answer(msgspec.Struct):
    """The part of `/route`'s answer that is used."""

    verdict: Verdict | None = None
    route: str | None = None
    table: str = ""


class SidecarClient:
    """One sidecar. `address` is `unix:PATH` or an `http://` URL on loopback."""

    def __init__(self, address: str, metrics: Metrics, token: str = "") -> None:
        """Opens nothing; the session is made with the first question."""
        self.address = address
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["x-turnout-token"] = token
        self._metrics = metrics
        self._breaker = Breaker()
        self._session: aiohttp.ClientSession | None = None

    async def classify(
        self, text: str, attachments: Sequence[str] = (), *, timeout_ms: int
    ) -> Verdict:
        """The classifier's verdict, or one without a route that says why there is none."""
        now = time.monotonic()
        if not self._breaker.allows(now):
            return self._without("breaker_open", "sidecar is not answering, not asked")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._ask(text, attachments)
        except TimeoutError:
            self._breaker.failed(time.monotonic())
            return self._without("late", f"classifier late (over {timeout_ms} ms)")
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            self._breaker.failed(time.monotonic())
            return self._without("unreachable", f"sidecar unreachable ({type(error).__name__})")
        self._breaker.succeeded()
        if answer.verdict is None:
            return self._without("no_verdict", "classifier gave no verdict")
        self._metrics.classifications.labels("answered").inc()
        return answer.verdict

    async def close(self) -> None:
        """Close the session; a later question opens a new one."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, text: str, attachments: Sequence[str]) -> _Answer:
        if self._session is None:
            self._session = self._open()
        body = msgspec.json.encode({"text": text, "attachments": attachments, "only": "semantic"})
        url = "http://sidecar/route" if self._is_unix else f"{self.address.rstrip('/')}/route"
        async with self._session.post(url, data=body, headers=self._headers) as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=_Answer)

    def _open(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if self._is_unix:
            connector = aiohttp.UnixConnector(self.address.removeprefix("unix:"))
        else:
            connector = aiohttp.TCPConnector()
        # Proxy variables of the environment would lead back into this proxy.
        return aiohttp.ClientSession(connector=connector, trust_env=False)

    @property
    def _is_unix(self) -> bool:
        return self.address.startswith("unix:")

    def _without(self, outcome: str, reason: str) -> Verdict:
        self._metrics.classifications.labels(outcome).inc()
        return Verdict(route=None, reason=reason)


async def is_answering(origin: Origin) -> bool:
    """Whether the gateway answers; a dead one is known before the request goes.

    mitmproxy cannot answer in the API's format once it has tried and failed. A connection alone
    says nothing: the kernel accepts it for a process that stands still. Any answer will do.
    """
    try:
        async with asyncio.timeout(GATEWAY_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(origin.host, origin.port)
            try:
                if origin.scheme == "https":
                    return True
                host = origin.host_header.encode()
                writer.write(b"HEAD / HTTP/1.1\r\nhost: " + host + b"\r\nconnection: close\r\n\r\n")
                return (await reader.read(5)).startswith(b"HTTP/")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
