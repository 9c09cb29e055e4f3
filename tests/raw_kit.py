"""HTTP by hand, for what no client library would send and no server library would say."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

COMPLETION = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    b'"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}'
)
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(COMPLETION),
    COMPLETION,
)
TIMEOUT_S = 15.0


@dataclass
class RawUpstream:
    """A server that reads a request and says just what it is told, over and over."""

    port: int
    says: bytes = OK
    closes: bool = False
    """After each answer."""
    seen: list[bytes] = field(default_factory=list)
    """The requests, whole, as their bytes came."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def raw_upstream(says: bytes = OK, *, closes: bool = False) -> Iterator[RawUpstream]:
    """Run it on a free port until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    state = RawUpstream(listener.getsockname()[1], says, closes)
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(TIMEOUT_S)
            while request := read_message(connection.recv):
                state.seen.append(request)
                connection.sendall(state.says)
                if state.closes:
                    return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield state
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)


def read_message(receive: Callable[[int], bytes]) -> bytes:
    """One message with a length or in chunks, whole; empty: the peer has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (piece := receive(65_536)):
            return data
        data += piece
    head, _, _ = data.partition(b"\r\n\r\n")
    low = head.lower()
    if b"transfer-encoding: chunked" in low:
        while not (b"\r\n0\r\n" in data and data.endswith(b"\r\n\r\n")):
            if not (piece := receive(65_536)):
                return data
            data += piece
        return data
    at = low.find(b"content-length:")
    length = int(low[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    parts, have = [data], len(data)
    while have < len(head) + 4 + length:
        if not (piece := receive(1 << 20)):
            break
        parts.append(piece)
        have += len(piece)
    return b"".join(parts)


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A client's connection to a loopback port."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as it:
        it.settimeout(TIMEOUT_S)
        yield it


def ask(port: int, *pieces: bytes) -> bytes:
    """Write everything, only then read the final answer; its bytes, interim ones with it."""
    with connected(port) as it:
        for piece in pieces:
            it.sendall(piece)
        return read_answer(it)


def read_answer(connection: socket.socket) -> bytes:
    """The answer on a connection, interim ones before it."""
    before = b""
    while (answer := read_message(connection.recv)).startswith(b"HTTP/1.1 1"):
        before += answer
    return before + answer


def post(body: bytes, *fields: str, path: str = "/v1/chat/completions") -> bytes:
    """A request with a length."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *fields]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post_chunked(
    *chunks: bytes, trailers: str = "", fields: tuple[str, ...] = (), path: str = ""
) -> Iterator[bytes]:
    """A request in chunks, piece by piece."""
    lines = [f"POST {path or '/v1/chat/completions'} HTTP/1.1", "Host: 127.0.0.1", *fields]
    lines += ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    yield "\r\n".join(lines).encode() + b"\r\n\r\n"
    for chunk in chunks:
        yield b"%x\r\n%s\r\n" % (len(chunk), chunk)
    yield b"0\r\n" + trailers.encode() + b"\r\n"
