"""An engine's output: the last lines in memory, all of it in a file that rotates once.

Writing never raises and never blocks on a reader: a full disk costs the file, not the engine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path

_MAX_LINE_BYTES = 8 * 1024
_FOLLOWER_LINES = 1_000
_KEPT_BYTES = 1024 * 1024


class LogRing:
    """The last `max_bytes` of output. `lines_seen` only grows, and serves as a sign of life."""

    def __init__(self, path: Path | None = None, max_bytes: int = 8 * 1024 * 1024) -> None:
        """`path`: the file beside the ring; at `max_bytes` it becomes `<path>.1`."""
        self.path = path
        self.lines_seen = 0
        self._life_began = 0
        self.file_error = ""
        """Why the file is not written any more; empty: it is."""
        self.max_bytes = max_bytes
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._partial = b""
        self._followers: set[asyncio.Queue[str]] = set()

    def feed(self, data: bytes) -> None:
        """Take output as it comes off the pipe, in pieces of any size."""
        self._write_file(data)
        self._partial += data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, self._partial = self._partial.split(b"\n")
        if len(self._partial) > _MAX_LINE_BYTES:
            whole.append(self._partial)
            self._partial = b""
        for line in whole:
            self._add(line[:_MAX_LINE_BYTES].decode("utf-8", "replace"))

    def note(self, text: str) -> None:
        """A line of our own among the engine's."""
        self.feed(f"turnout: {text}\n".encode())

    def begin(self, text: str) -> None:
        """A new life begins: a note, and `tail_of_life` looks no further back."""
        self.note(text)
        self._life_began = self.lines_seen

    def tail(self, count: int) -> list[str]:
        """The last `count` lines, an unfinished one included."""
        lines = list(self._lines)
        if self._partial:
            lines.append(self._partial.decode("utf-8", "replace"))
        return lines[-count:] if count > 0 else []

    def tail_of_life(self, count: int) -> list[str]:
        """`tail` without what an earlier life wrote."""
        lived = self.lines_seen - self._life_began + bool(self._partial)
        return self.tail(min(count, lived))

    async def follow(self) -> AsyncIterator[str]:
        """Lines as they come, until the caller stops; a slow reader loses the oldest."""
        queue: asyncio.Queue[str] = asyncio.Queue(_FOLLOWER_LINES)
        self._followers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._followers.discard(queue)

    def _add(self, line: str) -> None:
        self.lines_seen += 1
        self._lines.append(line)
        self._bytes += len(line) + 1
        while self._bytes > min(self.max_bytes, _KEPT_BYTES) and len(self._lines) > 1:
            self._bytes -= len(self._lines.popleft()) + 1
        for queue in self._followers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(line)

    def _write_file(self, data: bytes) -> None:
        if self.path is None:
            return
        try:
            # Engines may quote prompts in their logs: the folder is this user's alone.
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.path.is_file() and self.path.stat().st_size + len(data) > self.max_bytes:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
            with self.path.open("ab", buffering=0) as file:
                file.write(data)
            self.file_error = ""
        except OSError as error:
            self.file_error = error.strerror or type(error).__name__
