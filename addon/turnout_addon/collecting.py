"""Gives memory back soon after large bodies have gone through.

mitmproxy's flows hold themselves in circles, so they stay until the collector looks at old objects,
which a quiet proxy puts off for hours. Never looks at a flow.
"""

from __future__ import annotations

import asyncio
import gc

LARGE_BYTES = 4 * 1024 * 1024
DELAYS_S = (1.0, 10.0, 60.0)
"""A flow may still be held by a connection that is about to close, so there are several looks."""


class Collector:
    """Asks the garbage collector to look again after large flows have ended."""

    def __init__(self) -> None:
        """Nothing is planned yet."""
        self._next: asyncio.TimerHandle | None = None
        self._later: list[asyncio.TimerHandle] = []

    def finished(self, size: int) -> None:
        """A flow with `size` bytes of body has ended. Must be called in the event loop."""
        if size < LARGE_BYTES:
            return
        loop = asyncio.get_running_loop()
        if self._next is None:
            self._next = loop.call_later(DELAYS_S[0], self._look)
        for planned in self._later:
            planned.cancel()
        self._later = [loop.call_later(delay_s, gc.collect) for delay_s in DELAYS_S[1:]]

    def _look(self) -> None:
        self._next = None
        # What was loaded to stay is frozen, so this takes a few milliseconds.
        gc.collect()
