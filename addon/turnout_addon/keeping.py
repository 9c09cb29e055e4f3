"""Keeps mitmweb's memory bounded: the oldest finished flows leave when there are too many.

mitmweb itself keeps every flow for ever.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from mitmproxy import http


class _View(Protocol):
    """The part of mitmproxy's `view` addon that is used."""

    def remove(self, flows: list[http.HTTPFlow]) -> None:
        """Take flows out of the list."""


class Keeper:
    """Counts finished flows and their bytes, and removes from the old end."""

    def __init__(self, view: _View, *, max_flows: int, max_bytes: int) -> None:
        """Both limits hold at once."""
        self._view = view
        self.max_flows = max_flows
        self.max_bytes = max_bytes
        self._finished: deque[tuple[http.HTTPFlow, int]] = deque()
        self._bytes = 0

    def finished(self, flow: http.HTTPFlow) -> None:
        """The flow is over and counts from now on."""
        size = _size(flow)
        self._finished.append((flow, size))
        self._bytes += size
        self._shorten()

    def limit(self, max_flows: int, max_bytes: int) -> None:
        """Other limits from now on."""
        self.max_flows, self.max_bytes = max_flows, max_bytes
        self._shorten()

    def _shorten(self) -> None:
        while len(self._finished) > self.max_flows or self._bytes > self.max_bytes:
            oldest, size = self._finished.popleft()
            self._bytes -= size
            self._view.remove([oldest])


def _size(flow: http.HTTPFlow) -> int:
    request = len(flow.request.raw_content or b"")
    return request + (len(flow.response.raw_content or b"") if flow.response else 0)
