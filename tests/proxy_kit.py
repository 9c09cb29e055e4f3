"""A real proxy process, a recording upstream with a certificate of its own, and the environment
that points clients at them. Everything on loopback, everything with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import certifi
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

READY_TIMEOUT_S = 40.0
STOP_TIMEOUT_S = 10.0


def wait_until(condition: Callable[[], Any], timeout_s: float = 10.0, what: str = "") -> Any:
    """Poll until `condition` is true; its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        time.sleep(0.02)
    return value


def make_certificates(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path]:
    """A test CA and a server certificate for `names`; (CA file, server file with key)."""
    now = datetime.now(UTC)

    def build(subject: str, issuer: str, key: Any, signer: Any, is_ca: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if not is_ca:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(n) for n in names]), critical=False
            )
        return builder.sign(signer, hashes.SHA256())

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = build("Test CA", "Test CA", ca_key, ca_key, True)
    leaf = build(names[0], "Test CA", key, ca_key, False)
    pem = serialization.Encoding.PEM
    ca_file, server_file = folder / "test-ca.pem", folder / "server.pem"
    ca_file.write_bytes(ca.public_bytes(pem))
    plain = serialization.NoEncryption()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    server_file.write_bytes(secret + leaf.public_bytes(pem))
    return ca_file, server_file


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass
class Seen:
    """A request as an upstream received it."""

    method: str
    path: str
    fields: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.fields}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Reply = Callable[[web.Request, Seen], Awaitable[web.StreamResponse]]


async def say_ok(request: web.Request, seen: Seen) -> web.StreamResponse:
    """A plain chat completion that names the model asked for."""
    model = "none"
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        model = seen.json.get("model", "none")
    message = {"role": "assistant", "content": f"ok from {model}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return web.json_response(
        {"id": "x", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    )


@dataclass
class Upstream:
    """A loopback provider that records everything it receives."""

    port: int
    is_tls: bool
    seen: list[Seen] = field(default_factory=list)
    disconnects: list[float] = field(default_factory=list)
    reply: Reply = say_ok

    @property
    def url(self) -> str:
        scheme, host = ("https", "localhost") if self.is_tls else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.port}"

    @property
    def last(self) -> Seen:
        return self.seen[-1]


@contextlib.contextmanager
def upstream(reply: Reply = say_ok, *, server_file: Path | None = None) -> Iterator[Upstream]:
    """Run an upstream in a thread of its own."""
    state = Upstream(port=0, is_tls=server_file is not None, reply=reply)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        fields = [(n.decode(), v.decode("latin-1")) for n, v in request.raw_headers]
        seen = Seen(request.method, request.raw_path, fields, b"")
        state.seen.append(seen)
        seen.body = await request.read()
        try:
            return await state.reply(request, seen)
        except (ConnectionResetError, asyncio.CancelledError):
            state.disconnects.append(time.monotonic())
            raise

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", handle)
        # auto_decompress off: what came over the wire is what is recorded.
        runner = web.AppRunner(
            app, handler_cancellation=True, auto_decompress=False, shutdown_timeout=0.1
        )
        await runner.setup()
        tls = None
        if server_file is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(server_file)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        state.port = runner.addresses[0][1]
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield state
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@contextlib.contextmanager
def leads_to(port: int) -> Iterator[int]:
    """A proxy that connects whoever asks for any host with 127.0.0.1:`port`; its own port."""
    loop = asyncio.new_event_loop()
    ready: list[int] = []
    is_up = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asked = await reader.readuntil(b"\r\n\r\n")
            assert asked.startswith(b"CONNECT "), asked[:40]
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def start() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])
        is_up.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_up.wait(10)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@dataclass
class Proxy:
    """A running proxy."""

    process: subprocess.Popen[bytes]
    state: dict[str, Any]
    folder: Path
    rules: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.state['proxy_port']}"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.state['base_url_port']}"

    @property
    def ca(self) -> Path:
        return Path(self.state["ca_cert"])

    @property
    def bundle(self) -> Path:
        """Public roots and the proxy's CA: for `SSL_CERT_FILE`."""
        bundle = self.folder / "bundle.pem"
        bundle.write_bytes(Path(certifi.where()).read_bytes() + b"\n" + self.ca.read_bytes())
        return bundle

    @property
    def log(self) -> str:
        return (self.folder / "proxy.log").read_text(errors="replace")

    def environment(self) -> dict[str, str]:
        """For a client process: everything through the proxy, loopback hosts too."""
        changed = {k: v for k, v in os.environ.items() if k.lower() != "no_proxy"}
        return changed | {"HTTPS_PROXY": self.url, "SSL_CERT_FILE": str(self.bundle)}


@contextlib.contextmanager
def proxy(
    folder: Path,
    rules: Path,
    *arguments: str,
    is_lean: bool = True,
    environ: dict[str, str] | None = None,
) -> Iterator[Proxy]:
    """`python -m turnout_addon` until the block ends; asserts that it stops when told."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "turnout_addon", "--rules", str(rules)]
    command += ["--port", "0", "--base-url-port", "0", "--web-port", "0", "--verbose"]
    command += ["--ready-file", str(ready), *(["--lean"] if is_lean else []), *arguments]
    with plane(folder, "proxy", command, ready, environ) as process:
        yield Proxy(process, json.loads(ready.read_text()), folder, rules)


@contextlib.contextmanager
def plane(
    folder: Path,
    name: str,
    command: list[str],
    ready: Path,
    environ: dict[str, str] | None = None,
    stop_timeout_s: float = STOP_TIMEOUT_S,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours with folders of its own, from its ready file to the end of the block."""
    own = {"TURNOUT_DATA_DIR": str(folder / "data"), "TURNOUT_RUNTIME_DIR": str(folder / "run")}
    path = folder / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, env=os.environ | own | (environ or {}), stdout=log, stderr=log
        )
    try:
        wait_until(
            lambda: ready.exists() or process.poll() is not None, READY_TIMEOUT_S, f"{name} ready"
        )
        assert ready.exists(), path.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def write_rules(folder: Path, **files: str) -> Path:
    """A rules folder: `routes="…"` becomes `routes.yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder
