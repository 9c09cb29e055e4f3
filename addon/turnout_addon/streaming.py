"""Streams responses through as they come, and keeps a bounded copy for mitmweb.

No chunk waits for the next, none is changed. The copy is put back as the response's body when the
stream ends, however it ends; past its limit only the head is kept.
"""

from __future__ import annotations

from mitmproxy import http


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
        response.data.content = b"".join(self._chunks)
        self._chunks.clear()

    @property
    def is_cut(self) -> bool:
        """Whether the stream was longer than what is kept."""
        return self.seen_bytes > self.kept_bytes
