"""What a tool asks its maker besides a model passes through the opened TLS to the byte.

Sign-in, settings, telemetry, registries: recorded from Claude Code and Codex. Client and server are
plain sockets here, so that every byte of both directions is compared.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy_kit import Proxy, leads_to, make_certificates, proxy, write_rules

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "first_party.jsonl").read_text().splitlines()
]
OPENED = ("api.anthropic.com", "chatgpt.com", "api.openai.com")
"""On the intercept list; what goes to other hosts is tunnelled."""

# A rule takes whatever it may take: what passes, passes by nature.
ROUTES = """
routes:
  - {name: everything, match: [.*], target: elsewhere/model}
"""
UPSTREAMS = 'upstreams:\n  elsewhere: {base_url: "http://127.0.0.1:1/v1"}\n'


def recorded(row: dict[str, object]) -> tuple[str, bytes]:
    """Host and bytes of a recorded request."""
    body = base64.b64decode(str(row.get("body_base64", "")))
    body = body or str(row.get("body", "")).encode()
    head = f"{row['method']} {row['path']} HTTP/1.1\r\n"
    fields = [tuple(one) for one in row["fields"]]  # type: ignore[attr-defined]
    head += "".join(f"{name}: {value}\r\n" for name, value in fields)
    return str(row["host"]), head.encode("latin-1") + b"\r\n" + body


def made(host: str, *lines: str, body: bytes = b"") -> tuple[str, bytes]:
    """A request from its lines."""
    length = [f"content-length: {len(body)}"] if body else []
    text = "\r\n".join([lines[0], f"HoSt: {host}", *lines[1:], *length, "", ""])
    return host, text.encode("latin-1") + body


OAUTH = json.dumps({"grant_type": "refresh_token", "refresh_token": "r"}).encode()
MADE = {
    "HEAD of the base URL": made("api.anthropic.com", "HEAD / HTTP/1.1"),
    "GET of the models": made("api.anthropic.com", "GET /v1/models?limit=1000 HTTP/1.1"),
    "GET of OpenAI's models": made("api.openai.com", "GET /v1/models HTTP/1.1"),
    "OPTIONS before a browser's call": made(
        "api.anthropic.com",
        "OPTIONS /v1/messages?beta=true HTTP/1.1",
        "Origin: https://claude.ai",
        "Access-Control-Request-Method: POST",
    ),
    "sign-in": made(
        "api.anthropic.com",
        "POST /v1/oauth/token HTTP/1.1",
        "Content-TYPE: application/json",
        body=OAUTH,
    ),
    "telemetry, gzipped": made(
        "api.anthropic.com",
        "POST /api/event_logging/v2/batch HTTP/1.1",
        "content-encoding: gzip",
        body=gzip.compress(b'{"model": "claude", "messages": [{"role": "user"}]}', mtime=0),
    ),
    "a body that looks like a model call": made(
        "api.anthropic.com",
        "POST /api/claude_code/feedback?x=%2F..%2f&&y HTTP/1.1",
        body=b'{"model":"m" ,"messages":[ {"role":"user","content":"debug"}]}',
    ),
    "a long upload": made(
        "chatgpt.com", "PUT /backend-api/files/upload HTTP/1.1", body=bytes(range(256)) * 8_192
    ),
    "odd header case and order": made(
        "chatgpt.com",
        "GET /backend-api/wham/tasks/list?limit=20&task_filter=current HTTP/1.1",
        "X-ODD-Case: once",
        "x-odd-case: twice",
        "cookie: a=1; b=\xe9",
        "Authorization: Bearer the-clients-own-token",
    ),
    "deletion": made("api.openai.com", "DELETE /v1/responses/resp_1 HTTP/1.1"),
}
REQUESTS = {
    **{f"{r['tool']}: {r['method']} {r['host']}{r['path'][:50]}": recorded(r) for r in ROWS},
    **MADE,
}


def answer(path: str, *, is_head: bool) -> bytes:
    """An answer whose bytes a proxy would like to tidy up."""
    if "grove" in path or path.startswith("/v1/oauth"):
        head = b"HTTP/1.1 401 Unauthorised, sorry\r\nWWW-Authenticate: Bearer\r\n"
        return head + b"Content-Length: 2\r\n\r\n{}"
    if "models" in path:
        chunks = b'7\r\n{"data"\r\n4\r\n:[]}\r\n0\r\n\r\n'
        return b'HTTP/1.1 200 OK\r\nTRANSFER-encoding: chunked\r\nETag: W/"x"\r\n\r\n' + chunks
    body = gzip.compress(b'{"ok": true}', mtime=0)
    head = b"HTTP/1.1 200 \r\nset-cookie: a=1\r\nX-Turnout-Like: yes\r\nSet-Cookie: b=2\r\n"
    head += b"content-ENCODING: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head if is_head else head + body


UPGRADED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
FRAMES = b"".join(
    (
        b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58",  # the masked text "Hello" of RFC 6455
        b"\x02\x81\x00\x00\x00\x00\xff",  # the first half of a binary message
        b"\x80\x81\x01\x02\x03\x04\xfe",
    )
)


@dataclass
class Origin:
    """Every host of the makers, on one port: what arrived, byte by byte."""

    port: int
    seen: list[bytes] = field(default_factory=list)


def read_request(stream: ssl.SSLSocket) -> bytes:
    """One request: its head, and as much body as it announces."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(65_536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        x.split(b":")[1] for x in head.lower().split(b"\r\n") if x[:15] == b"content-length:"
    ]
    missing = (int(lengths[0]) if lengths else 0) - len(body)
    while missing > 0:
        piece = stream.recv(65_536)
        data, missing = data + piece, missing - len(piece)
    return data


def serve(origin: Origin, raw: socket.socket, tls: ssl.SSLContext) -> None:
    """Answer the requests of one connection; echo what follows an upgrade."""
    with contextlib.suppress(OSError), tls.wrap_socket(raw, server_side=True) as stream:
        while request := read_request(stream):
            origin.seen.append(request)
            method, path = request.split(b" ", 2)[:2]
            if b"websocket" in request.lower():
                stream.sendall(UPGRADED)
                while piece := stream.recv(65_536):
                    stream.sendall(piece)
                return
            stream.sendall(answer(path.decode(), is_head=method == b"HEAD"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    hosts = sorted({host for host, _ in REQUESTS.values()})
    return make_certificates(tmp_path_factory.mktemp("tls"), tuple(hosts))


@pytest.fixture(scope="module")
def origin(certificates: tuple[Path, Path]) -> Iterator[Origin]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates[1])
    listener = socket.create_server(("127.0.0.1", 0))
    found = Origin(listener.getsockname()[1])

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                threading.Thread(target=serve, args=(found, raw, tls), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield found
    listener.close()


@pytest.fixture(scope="module", params=["lean", "mitmweb"])
def running(
    request: pytest.FixtureRequest,
    origin: Origin,
    certificates: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("first-party")
    with leads_to(origin.port) as way:
        turnout = (
            f"proxy:\n  intercept: [{', '.join(OPENED)}]\n  upstream_ca: {certificates[0]}\n"
            f'  upstream_proxy: http://127.0.0.1:{way}\nclassifier: {{kind: "off"}}\n'
        )
        rules = write_rules(folder / "rules", routes=ROUTES, upstreams=UPSTREAMS, turnout=turnout)
        with proxy(folder / "proxy", rules, is_lean=request.param == "lean") as p:
            yield p


@contextlib.contextmanager
def connection(p: Proxy, host: str, ca: Path) -> Iterator[ssl.SSLSocket]:
    """A tunnel through the proxy, with the TLS that a client that trusts `ca` speaks in it."""
    with socket.create_connection(("127.0.0.1", p.state["proxy_port"]), timeout=20) as raw:
        raw.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
        assert b" 200 " in raw.recv(4_096).split(b"\r\n")[0]
        trust = ssl.create_default_context(cafile=str(ca))
        trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the test CA leaves out key identifiers
        with trust.wrap_socket(raw, server_hostname=host) as stream:
            yield stream


def receive(stream: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := stream.recv(65_536)):
        data += piece
    return data


@pytest.mark.parametrize("name", REQUESTS)
def test_every_byte_of_both_directions_passes(
    name: str, running: Proxy, origin: Origin, certificates: tuple[Path, Path]
) -> None:
    host, request = REQUESTS[name]
    method, path = request.split(b" ", 2)[:2]
    wanted = answer(path.decode(), is_head=method == b"HEAD")
    origin.seen.clear()
    # Another host's TLS is not opened: the client sees the origin's own certificate.
    ca = running.ca if host in OPENED else certificates[0]
    with connection(running, host, ca) as stream:
        stream.sendall(request)
        assert receive(stream, len(wanted)) == wanted
    assert origin.seen == [request]


def test_a_websocket_of_another_endpoint_is_opened_and_carried(
    running: Proxy, origin: Origin, certificates: tuple[Path, Path]
) -> None:
    host, request = made(
        "chatgpt.com",
        "GET /backend-api/remote/control/server?x=1 HTTP/1.1",
        "Connection: Upgrade",
        "upgrade: WebSocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    origin.seen.clear()
    with connection(running, host, running.ca) as stream:
        stream.sendall(request)
        assert receive(stream, len(UPGRADED)) == UPGRADED
        stream.sendall(FRAMES)
        assert receive(stream, len(FRAMES)) == FRAMES
    assert origin.seen == [request]


def test_the_same_host_opens_no_websocket_for_a_model(running: Proxy, origin: Origin) -> None:
    host, request = made(
        "api.openai.com",
        "GET /v1/responses HTTP/1.1",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    origin.seen.clear()
    with connection(running, host, running.ca) as stream:
        stream.sendall(request)
        assert b" 426 " in receive(stream, 30)
    assert origin.seen == []
