"""Streams responses through as they come, and keeps a bounded copy for mitmweb.

No chunk waits for the next, none is changed. The copy is put back as the response's body when the
stream ends, however it ends; past its limit only the head is kept. Behind the answer of a target
that ends too early an error is added; what was passed to its origin is never added to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy import http

from turnout_addon.display import passes
from turnout_rules.answers import Answer
from turnout_rules.decision import Decision
from turnout_rules.errors import error_body, error_event

if TYPE_CHECKING:
    from turnout_addon.passage import Passage

# A share of what mitmweb may keep in all: one stream never pushes every other flow out.
_STREAM_SHARE = 8
_NOTHING = "answered 200 and sent nothing"
_UNFINISHED = "ended its stream without its closing event"


def stream(response: http.Response, passage: Passage | None, *, keeps_body: bool) -> None:
    """Let the body through as it comes, with whoever looks at it on the way in `passage`."""
    response.stream = True
    if passage is None:
        return
    if keeps_body:
        limit = passage.routing.settings.proxy.keep_flow_bytes // _STREAM_SHARE
        response.stream = passage.tee = Tee(limit)
    decision = passage.decision
    if decision is None or passage.is_for_gateway or passes(decision) or not passage.endpoint:
        return
    length = response.headers.get("content-length", "0")
    is_open = length == "0" and "content-encoding" not in response.headers
    if is_open and 200 <= response.status_code < 300:
        passage.ending = Ending(passage.endpoint, decision, response, passage.tee)
        response.stream = passage.ending


class Tee:
    """Given to mitmproxy as `response.stream`: called with each chunk, `b""` marks the end."""

    __slots__ = ("_chunks", "_limit", "kept_bytes", "seen_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """Keep at most `limit_bytes` of the stream."""
        self._chunks: list[bytes] = []
        self._limit = limit_bytes
        self.kept_bytes = 0
        self.seen_bytes = 0

    def __call__(self, chunk: bytes) -> bytes:
        """Keep the chunk if there is room; return it as it came."""
        self.seen_bytes += len(chunk)
        if chunk and self.kept_bytes < self._limit:
            kept = chunk[: self._limit - self.kept_bytes]
            self._chunks.append(kept)
            self.kept_bytes += len(kept)
        return chunk

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
    """Like a `Tee`, round one if there is one: adds an error behind an answer that lacks its end.

    For answers of targets that were asked directly: there is nobody to fall back to, but the client
    shall not take a part, or nothing, for the whole.
    """

    __slots__ = (
        "_answer",
        "_can_add",
        "_decision",
        "_endpoint",
        "_tee",
        "_was_streamed",
        "is_told",
    )

    def __init__(
        self, endpoint: str, decision: Decision, response: http.Response, tee: Tee | None
    ) -> None:
        """Nothing has come."""
        content_type = response.headers.get("content-type", "")
        self._answer = Answer(endpoint, content_type=content_type)
        self._can_add = "content-length" not in response.headers
        self._endpoint = endpoint
        self._decision = decision
        self._tee = tee
        self.is_told = False
        """Whether an error was added."""
        self._was_streamed = False

    def __call__(self, chunk: bytes) -> bytes:
        """The chunk as it came; at the end, what the client must still be told."""
        self._was_streamed = True
        # A plain body that has begun is the client's to judge.
        if self._answer.is_stream or not self._answer.has_begun:
            if chunk:
                self._answer.feed(chunk)
            elif self._can_add:
                chunk = self._last_words()
        return self._tee(chunk) if self._tee else chunk

    def fill(self, response: http.Response) -> None:
        """Make a response that never had a body, and of which nothing has been sent, an error."""
        if self._was_streamed or response.raw_content:
            return
        self.is_told = True
        response.status_code, response.reason = 502, "Bad Gateway"
        response.headers["content-type"] = "application/json"
        response.content = self._error("upstream_empty", self._message(_NOTHING))

    def _last_words(self) -> bytes:
        """An error event behind a stream, an error body in the place of none; else nothing."""
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

    def _message(self, words: str) -> str:
        return f"{self._decision.target} {words}"

    def _error(self, code: str, message: str) -> bytes:
        return error_body(self._endpoint, 502, message, code=code, route=self._decision.route)
