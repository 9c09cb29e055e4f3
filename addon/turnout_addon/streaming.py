"""Streams responses through as they come, and keeps a bounded copy for mitmweb.

No chunk waits for the next, and none is changed but where calls must be turned back into what the
client declared. The copy, as the client got it, is put back as the response's body when the stream
ends, however it ends; past its limit only the head is kept. Behind the answer of a target that ends
too early an error is added; what was passed to its origin is never added to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mitmproxy import http

from turnout_addon.display import passes
from turnout_rules.answers import Answer
from turnout_rules.decision import Decision
from turnout_rules.errors import error_body, error_event
from turnout_rules.tool_answers import CallTurner, call_turner
from turnout_rules.tool_names import Calls

if TYPE_CHECKING:
    from turnout_addon.passage import Passage

logger = logging.getLogger(__name__)
# A share of what mitmweb may keep in all: one stream never pushes every other flow out.
_STREAM_SHARE = 8
_NOTHING = "answered 200 and sent nothing"
_UNFINISHED = "ended its stream without its closing event"


def stream(flow: http.HTTPFlow, passage: Passage | None, *, keeps_body: bool) -> None:
    """Let the body through as it comes, with whoever looks at it on the way in `passage`."""
    response = flow.response
    if response is None:
        return
    response.stream = True
    if passage is None:
        return
    if keeps_body:
        passage.tee = Tee(passage.routing.settings.proxy.keep_flow_bytes // _STREAM_SHARE)
    if _may_end_too_early(response, passage) and passage.decision is not None:
        passage.ending = Ending(passage.endpoint, passage.decision, response)
    turner = _turner(flow, passage.endpoint, passage.calls)
    if turner or passage.ending or passage.tee:
        response.stream = Relay(turner, passage.ending, passage.tee)


def _may_end_too_early(response: http.Response, passage: Passage) -> bool:
    """Whether a target was asked directly, whose answer is told from a part of one as it ends."""
    decision = passage.decision
    if decision is None or passage.is_for_gateway or passes(decision) or not passage.endpoint:
        return False
    length = response.headers.get("content-length", "0")
    is_open = length == "0" and "content-encoding" not in response.headers
    return is_open and 200 <= response.status_code < 300


def _turner(flow: http.HTTPFlow, endpoint: str, calls: Calls | None) -> CallTurner | None:
    """How the answer's calls are turned back, with its head made ready for it; None: not at all."""
    response = flow.response
    if calls is None or response is None:
        return None
    headers = response.headers
    encoding = headers.get("content-encoding", "")
    kind = headers.get("content-type", "")
    turner = call_turner(calls, endpoint, response.status_code, kind, encoding)
    if turner is None:
        if encoding and response.status_code < 300:
            logger.warning("turnout: calls stay as they came: the answer is in %r", encoding)
        return None
    if headers.pop("content-length", None) is not None and not flow.request.is_http2:
        headers["transfer-encoding"] = "chunked"
    return turner


class Relay:
    """Given to mitmproxy as `response.stream`: called with each chunk, `b""` marks the end."""

    __slots__ = ("_ending", "_tee", "_turner")

    def __init__(self, turner: CallTurner | None, ending: Ending | None, tee: Tee | None) -> None:
        """In the order in which they see the answer."""
        self._turner = turner
        self._ending = ending
        self._tee = tee

    def __call__(self, chunk: bytes) -> bytes | list[bytes]:
        """What goes to the client now."""
        out = chunk
        if self._ending is not None:
            self._ending.watch(chunk)
        if self._turner is not None:
            out = self._turner.feed(chunk) if chunk else self._turner.end()
        if self._ending is not None and not chunk:
            out += self._ending.last_words()
        if self._tee is not None:
            self._tee.keep(out)
        # An empty chunk would end the response.
        return out or []


class Tee:
    """A bounded copy of what the client got."""

    __slots__ = ("_chunks", "_limit", "kept_bytes", "seen_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """Keep at most `limit_bytes` of the stream."""
        self._chunks: list[bytes] = []
        self._limit = limit_bytes
        self.kept_bytes = 0
        self.seen_bytes = 0

    def keep(self, chunk: bytes) -> None:
        """Keep the chunk if there is room."""
        self.seen_bytes += len(chunk)
        if chunk and self.kept_bytes < self._limit:
            kept = chunk[: self._limit - self.kept_bytes]
            self._chunks.append(kept)
            self.kept_bytes += len(kept)

    def put_back(self, response: http.Response) -> None:
        """Make the copy the body that mitmweb shows; nothing of it goes out again."""
        # raw: the bytes are as the upstream encoded them, mitmweb decodes by the header.
        if self._chunks or response.data.content is None:
            response.data.content = b"".join(self._chunks)
        self._chunks.clear()

    @property
    def is_cut(self) -> bool:
        """Whether the stream was longer than what is kept."""
        return self.seen_bytes > self.kept_bytes


class Ending:
    """Tells an answer that lacks its end, and what must then be said behind it.

    For answers of targets that were asked directly: there is nobody to fall back to, but the client
    shall not take a part, or nothing, for the whole.
    """

    __slots__ = (
        "_answer",
        "_can_add",
        "_decision",
        "_endpoint",
        "_was_streamed",
        "is_told",
    )

    def __init__(self, endpoint: str, decision: Decision, response: http.Response) -> None:
        """Nothing has come."""
        content_type = response.headers.get("content-type", "")
        self._answer = Answer(endpoint, content_type=content_type)
        self._can_add = "content-length" not in response.headers
        self._endpoint = endpoint
        self._decision = decision
        self.is_told = False
        """Whether an error was added."""
        self._was_streamed = False

    def watch(self, chunk: bytes) -> None:
        """Look at what the target sent."""
        self._was_streamed = True
        if chunk and self._is_watched:
            self._answer.feed(chunk)

    def fill(self, response: http.Response) -> None:
        """Make a response that never had a body, and of which nothing has been sent, an error."""
        if self._was_streamed or response.raw_content:
            return
        self.is_told = True
        response.status_code, response.reason = 502, "Bad Gateway"
        response.headers["content-type"] = "application/json"
        response.content = self._error("upstream_empty", self._message(_NOTHING))

    def last_words(self) -> bytes:
        """An error event behind a stream, an error body in the place of none; else nothing."""
        if not (self._can_add and self._is_watched):
            return b""
        answer = self._answer
        answer.end()
        if answer.is_cut:
            self.is_told = True
            code = "upstream_broken" if answer.has_begun else "upstream_empty"
            message = self._message(_UNFINISHED if answer.has_begun else _NOTHING)
            return error_event(
                self._endpoint,
                self._error(code, message),
                code=code,
                message=message,
                sequence_number=answer.sequence_number,
            )
        if not answer.has_begun:
            self.is_told = True
            return self._error("upstream_empty", self._message(_NOTHING))
        return b""

    @property
    def _is_watched(self) -> bool:
        """A plain body that has begun is the client's to judge."""
        return self._answer.is_stream or not self._answer.has_begun

    def _message(self, words: str) -> str:
        return f"{self._decision.target} {words}"

    def _error(self, code: str, message: str) -> bytes:
        return error_body(self._endpoint, 502, message, code=code, route=self._decision.route)
