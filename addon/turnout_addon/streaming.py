"""Streams responses through as they come, and keeps a bounded copy for mitmweb.

No chunk waits for the next, and none is changed but where calls must be turned back into what the
client declared. The copy, as the client got it, is put back as the response's body when the stream
ends, however it ends; past its limit only the head is kept.
"""

from __future__ import annotations

import logging

from mitmproxy import http

from turnout_rules.tool_answers import Answer, answer
from turnout_rules.tool_names import Calls

logger = logging.getLogger(__name__)


class Tee:
    """Given to mitmproxy as `response.stream`: called with each chunk, `b""` marks the end."""

    __slots__ = ("_answer", "_chunks", "_limit", "kept_bytes", "seen_bytes")

    def __init__(self, limit_bytes: int, answer: Answer | None = None) -> None:
        """Keep at most `limit_bytes` of the stream; `answer` turns its calls back."""
        self._answer = answer
        self._chunks: list[bytes] = []
        self._limit = limit_bytes
        self.kept_bytes = 0
        self.seen_bytes = 0

    def __call__(self, chunk: bytes) -> bytes | list[bytes]:
        """Keep the chunk if there is room; return it as it goes to the client."""
        if self._answer is None:
            return self._keep(chunk)
        chunk = self._answer.feed(chunk) if chunk else self._answer.end()
        # An empty chunk would end the response.
        return self._keep(chunk) if chunk else []

    def _keep(self, chunk: bytes) -> bytes:
        self.seen_bytes += len(chunk)
        if chunk and self.kept_bytes < self._limit:
            kept = chunk[: self._limit - self.kept_bytes]
            self._chunks.append(kept)
            self.kept_bytes += len(kept)
        return chunk

    def put_back(self, response: http.Response) -> None:
        """Make the copy the body that mitmweb shows; nothing of it goes out again."""
        # raw: the bytes are as the upstream encoded them, mitmweb decodes by the header.
        response.data.content = b"".join(self._chunks)
        self._chunks.clear()

    @property
    def is_cut(self) -> bool:
        """Whether the stream was longer than what is kept."""
        return 0 < self._limit < self.seen_bytes


def turned_back(flow: http.HTTPFlow, endpoint: str, calls: Calls | None) -> Answer | None:
    """How the answer's calls are turned back, with its head made ready for it; None: not at all."""
    response = flow.response
    if calls is None or response is None:
        return None
    headers = response.headers
    encoding = headers.get("content-encoding", "")
    kind = headers.get("content-type", "")
    turned = answer(calls, endpoint, response.status_code, kind, encoding)
    if turned is None:
        if encoding and response.status_code < 300:
            logger.warning("turnout: calls stay as they came: the answer is in %r", encoding)
        return None
    if headers.pop("content-length", None) is not None and not flow.request.is_http2:
        headers["transfer-encoding"] = "chunked"
    return turned
