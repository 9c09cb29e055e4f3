"""Two small relays on loopback, in a thread of their own.

A tap stands between a client and the proxy and counts the bytes that reach the client. The way out
plays the network behind the proxy: it is the proxy's upstream proxy, leads the names of known
providers to the stand-in that plays them, and refuses every other name.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

CHUNK_BYTES = 65_536
START_TIMEOUT_S = 10.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Tap:
    """A relay to one port of loopback."""

    target: int
    port: int = 0
    received: int = 0
    """Bytes that have gone to the client side."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await _both_ways(reader, writer, far_reader, far_writer, self._count)

    def _count(self, size: int) -> None:
        self.received += size


@dataclass
class WayOut:
    """A CONNECT proxy that knows some names."""

    names: frozenset[str]
    target: int
    """Port of the stand-in that plays all of them."""
    port: int = 0
    refused: set[str] = field(default_factory=set)
    """Names that were asked for and are not known."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, address, *_ = head.decode("latin-1").split(" ")
        name = address.removeprefix("http://").split("/")[0].rpartition(":")[0] or address
        if method != "CONNECT" or name not in self.names:
            self.refused.add(name)
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _both_ways(reader, writer, far_reader, far_writer, lambda size: None)


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
    count: Callable[[int], None],
) -> None:
    async def pump(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, told: Callable[[int], None]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                sink.write(data)
                await sink.drain()
                told(len(data))
        with contextlib.suppress(OSError, RuntimeError):
            sink.write_eof()

    try:
        await asyncio.gather(
            pump(reader, far_writer, lambda size: None), pump(far_reader, writer, count)
        )
    finally:
        writer.close()
        far_writer.close()


def _quietly(serve: Serve) -> Serve:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    return served


@contextlib.contextmanager
def relays(*wanted: Tap | WayOut) -> Iterator[None]:
    """Run them until the block ends; each gets its `port`."""
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def start() -> list[asyncio.Server]:
        servers = []
        for relay in wanted:
            server = await asyncio.start_server(_quietly(relay.serve), "127.0.0.1", 0)
            relay.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        return servers

    def run() -> None:
        asyncio.set_event_loop(loop)
        servers = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        for server in servers:
            server.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(START_TIMEOUT_S)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_TIMEOUT_S)
