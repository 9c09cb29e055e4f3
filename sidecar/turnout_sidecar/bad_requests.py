"""What a client hears whose request is no HTTP, or whose head is too large: the API's error format.

aiohttp would answer in plain text, reset the connection while the rest is still coming, and quote
the head's bytes, a key perhaps, in its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from aiohttp import web, web_server
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from turnout_rules.errors import error_body

log = logging.getLogger(__name__)
DRAIN_BYTES = 16 * 1024 * 1024
DRAIN_S = 5.0
"""How much longer a refused connection is read, so that its sender sees the answer, no reset."""


class BrokenBody(Exception):
    """The rest of the body cannot be read: its chunks or trailers are no HTTP, or too large."""


def answer_in_format() -> None:
    """Put the answer in aiohttp's place; calling it again changes nothing."""
    web_server.RequestHandler = ApiRequestHandler  # type: ignore[attr-defined]


class ApiRequestHandler(RequestHandler):
    """One connection of a client."""

    _left: int | None = None
    """Bytes that are still read and dropped; None: the connection is in order."""
    _is_over: asyncio.Event

    def data_received(self, data: bytes) -> None:
        """Parse, or drop what follows a refused head."""
        if self._left is None:
            super().data_received(data)
            self._tell_who_waits()
            return
        self._left -= len(data)
        if self._left < 0:
            self._is_over.set()

    def _tell_who_waits(self) -> None:
        """Whoever reads the body of a request whose chunks are broken would wait for ever."""
        broken = next((m for m, _ in self._messages if isinstance(m, _ErrInfo)), None)
        if broken is None or self._current_request is None:
            return
        payload = self._current_request._payload
        if not payload.is_eof() and payload.exception() is None:
            payload.set_exception(BrokenBody())
            payload.feed_eof()  # nothing of it is to be drained

    def _make_error_handler(self, err_info: Any) -> Any:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            self._left, self._is_over = DRAIN_BYTES, asyncio.Event()
            response = _refusal(err_info.exc, err_info.message or "")
            await response.prepare(request)
            await response.write_eof()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._is_over.wait()
            return response

        return answer


def _refusal(error: BaseException | None, message: str) -> web.Response:
    is_large = isinstance(error, LineTooLong) or message.startswith("Too many")
    status, code = (431, "head_too_large") if is_large else (400, "no_http")
    words = "the request's head is too large" if is_large else "the request is not valid HTTP"
    log.info("a request was refused: %s", words)
    body = error_body("chat", status, words, code=code)
    response = web.Response(status=status, body=body, content_type="application/json")
    response.force_close()
    return response
