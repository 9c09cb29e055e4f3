"""Amends mitmproxy's HTTP/1 where it would hang, desynchronise or grow without bound.

Heads are bounded on both sides, interim answers before the final one are skipped, trailers are read
and dropped, and an upgrade that nobody asked for is an error. What is refused is answered in JSON
(`connecting.speak_json`). It decides nothing about where a request goes.
"""

from __future__ import annotations

import re
from typing import Any

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, ResponseProtocolError

MAX_HEAD_BYTES = 256 * 1024
"""Of a request's or an answer's head: eight times what nginx and Node.js take by default."""
MAX_FIELDS = 1_000
"""Header lines of a head; ten times Apache's default `LimitRequestFields` (100)."""
MAX_INTERIM = 32
"""Interim answers before the final one."""
DRAIN_BYTES = 16 * 1024 * 1024
DRAIN_S = 5.0
"""How much longer a refused head is read, so that its sender sees the answer, no reset."""
_MAX_LINE_BYTES = 64 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]")
_UPGRADE = re.compile(rb"HTTP/1\.[01] 101[ \r\n]")

# mitmproxy's own, so that its version of h11 is the one that is amended.
h11: Any = _http1.h11  # type: ignore[attr-defined]
ReceiveBuffer: Any = _http1.ReceiveBuffer  # type: ignore[attr-defined]
ChunkedReader: Any = _http1.ChunkedReader  # type: ignore[attr-defined]
_read_request_head = _http1.Http1Server.read_headers
_read_answer_head = _http1.Http1Client.read_headers
_make_body_reader = _http1.make_body_reader


def amend_http1() -> None:
    """Put the amended readers in place; calling it again changes nothing."""
    _http1.Http1Server.read_headers = read_request_head  # type: ignore[method-assign]
    _http1.Http1Client.read_headers = read_answer_head  # type: ignore[method-assign]
    _http1.make_body_reader = make_body_reader


def read_request_head(
    self: _http1.Http1Server, event: events.ConnectionEvent
) -> layer.CommandGenerator[None]:
    """As the original, but a head past its bounds is answered 431."""
    trouble = head_trouble(self.buf) if isinstance(event, events.DataReceived) else ""
    if not trouble:
        yield from _read_request_head(self, event)
        return
    yield commands.SendData(self.conn, _http1.make_error_response(431, f"the request's {trouble}"))
    yield commands.RequestWakeup(DRAIN_S)
    drained = len(self.buf)
    self.buf = ReceiveBuffer()

    def drain(event: events.Event) -> layer.CommandGenerator[None]:
        nonlocal drained
        drained += len(self.buf)
        self.buf = ReceiveBuffer()
        if not isinstance(event, events.DataReceived) or drained > DRAIN_BYTES:
            self.state = self.done
            yield commands.CloseConnection(self.conn)

    self.state = drain


def read_answer_head(
    self: _http1.Http1Client, event: events.ConnectionEvent
) -> layer.CommandGenerator[None]:
    """As the original, but for the final head alone, and only if it is one."""
    trouble = ""
    if isinstance(event, events.DataReceived) and self.request is not None:
        trouble = _skip_interim(self) or _odd_upgrade(self)
        if not trouble and (words := head_trouble(self.buf)):
            trouble = f"the answer's {words}"
    if not trouble:
        yield from _read_answer_head(self, event)
        return
    self.state = self.done
    yield commands.CloseConnection(self.conn)
    assert self.stream_id is not None
    yield ReceiveHttp(
        ResponseProtocolError(self.stream_id, trouble, ErrorCode.GENERIC_SERVER_ERROR)
    )


def head_trouble(buf: Any) -> str:
    """Why the head at the start of `buf` is not read on; empty: it is small enough so far."""
    head = bytes(buf)[: MAX_HEAD_BYTES + 4]
    ends = [at for at in (head.find(b"\r\n\r\n"), head.find(b"\n\n")) if at >= 0]
    if not ends and len(head) > MAX_HEAD_BYTES:
        return f"head is larger than {MAX_HEAD_BYTES} bytes"
    if head.count(b"\n", 0, min(ends, default=len(head))) > MAX_FIELDS:
        return f"head has more than {MAX_FIELDS} header lines"
    return ""


def _skip_interim(self: _http1.Http1Client) -> str:
    """Drop whole interim heads (100, 102, 103 …); words of trouble if there is no end of them."""
    seen: dict[str, Any] = self.__dict__.setdefault("interim_heads", {"of": None, "count": 0})
    if seen["of"] != self.stream_id:
        seen.update(of=self.stream_id, count=0)
    while _INTERIM.match(bytes(self.buf)[:16]) and not head_trouble(self.buf):
        if self.buf.maybe_extract_lines() is None:
            return ""
        seen["count"] += 1
        if seen["count"] > MAX_INTERIM:
            return f"more than {MAX_INTERIM} interim answers came and no final one"
    return ""


def _odd_upgrade(self: _http1.Http1Client) -> str:
    if self.request is None or "upgrade" in self.request.headers:
        return ""
    if _UPGRADE.match(bytes(self.buf)[:16]):
        return "the server changed the protocol (101), which nobody asked for"
    return ""


class LenientChunks(ChunkedReader):  # type: ignore[misc]
    """Reads chunks as h11 does; trailers end the body and are dropped, within a bound."""

    def __call__(self, buf: Any) -> Any:
        """The next piece of the body, its end, or None: wait for more."""
        found = super().__call__(buf)
        if isinstance(found, h11.EndOfMessage):
            return h11.EndOfMessage()
        if found is None and self._bytes_in_chunk == 0 and len(buf) > _MAX_LINE_BYTES:
            raise h11.RemoteProtocolError("a chunk's first line or the trailers are too large")
        return found


def make_body_reader(expected_size: int | None) -> Any:
    """As the original, with `LenientChunks` for chunked bodies."""
    return LenientChunks() if expected_size is None else _make_body_reader(expected_size)
