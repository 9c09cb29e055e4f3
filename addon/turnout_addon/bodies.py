"""Bounds the bodies that the proxy collects, and answers what is larger while it is still coming.

mitmproxy collects a whole body before an early answer goes out, and its own limit also counts for
answers. Here the answer goes at once, and the rest of the body is read and dropped up to a bound,
because many clients only listen once they have written everything.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable

import msgspec
from mitmproxy import http
from mitmproxy.proxy import commands, layer
from mitmproxy.proxy.layers.http import DropStream, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    ResponseEndOfMessage,
)
from mitmproxy.proxy.layers.http._hooks import HttpResponseHeadersHook

DRAINED_LIMITS = 4
"""So many times its limit of a refused body is read and dropped; then the connection is cut."""
_LEAST_DRAINED = 1024 * 1024
COLLECT_BYTES = 1024 * 1024
"""Bodies of endpoints that no rule may touch are not collected past this size."""


class Bound(msgspec.Struct, frozen=True):
    """What a flow's body may be, and what is done when it is more."""

    limit_bytes: int
    refuse: Callable[[], None]
    """Sets the flow's response."""


_bounds: weakref.WeakKeyDictionary[http.HTTPFlow, Bound] = weakref.WeakKeyDictionary()


def amend_bodies() -> None:
    """Put the bounds in mitmproxy's place; calling it again changes nothing."""
    HttpStream.check_body_size = _check_body_size  # type: ignore[method-assign]


def bound_body(flow: http.HTTPFlow, limit_bytes: int, refuse: Callable[[], None]) -> None:
    """Collect at most `limit_bytes` of the flow's request body, then call `refuse`."""
    _bounds[flow] = Bound(limit_bytes, refuse)


def _check_body_size(self: HttpStream, request: bool) -> layer.CommandGenerator[bool]:
    """Asked after each piece of a body that is being collected; True: that has ended."""
    if not request or not self.request_body_buf:
        return False
    flow = self.flow
    bound = _bounds.get(flow)
    size = max(len(self.request_body_buf), announced_length(flow.request))
    if flow.response is None and bound is not None and size > bound.limit_bytes:
        bound.refuse()
    if flow.response is None:
        return False
    limit = bound.limit_bytes if bound is not None else 0
    yield from _answer_now(self, limit)
    return True


def _answer_now(self: HttpStream, limit: int) -> layer.CommandGenerator[None]:
    """Send the flow's response although its request is still coming, and drop what comes."""
    response = self.flow.response
    assert response is not None
    if not self.flow.request.is_http2:
        response.headers["connection"] = "close"
    left = max(limit * DRAINED_LIMITS, _LEAST_DRAINED) - len(self.request_body_buf)
    self.request_body_buf.clear()
    self.flow.request.data.content = b""
    yield HttpResponseHeadersHook(self.flow)
    yield from self.send_response()
    if self.client_state == self.state_errored:  # it has left meanwhile
        return
    self.flow.live = False
    yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)

    def drain(self: HttpStream, event: HttpEvent) -> layer.CommandGenerator[None]:
        nonlocal left
        if isinstance(event, RequestData):
            left -= len(event.data)
            if left < 0:
                yield commands.CloseConnection(self.context.client)
        elif isinstance(event, RequestEndOfMessage):
            yield DropStream(self.stream_id)

    self.client_state = types.MethodType(drain, self)


def stream_unread(request: http.Request) -> bool:
    """Whether the body of a request that no rule may touch is better not collected.

    HTTP/2's bodies without a length are: going on in HTTP/1 they need one.
    """
    if "content-length" in request.headers:
        return announced_length(request) > COLLECT_BYTES
    return not request.is_http2


def announced_length(request: http.Request) -> int:
    """Bytes of the body as its header says; 0: it does not."""
    value = request.headers.get("content-length", "")
    return int(value) if value.isdecimal() and len(value) < 20 else 0
