"""Where the sidecar listens: a loopback port and a Unix socket that only its user can open.

Takes over a socket whose owner is gone, never one that still answers. Writes the records by which
others find it, and removes them at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path

import msgspec
from aiohttp import web

from turnout_rules.folders import runtime_folder
from turnout_sidecar.bad_requests import answer_in_format

_OWN_FOLDER = "turnout-"
MAX_SOCKET_PATH_BYTES = 100
SHUTDOWN_TIMEOUT_S = 1.0
KEEPALIVE_TIMEOUT_S = 75.0


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running sidecar answers; the content of the ready file and of its record."""

    port: int
    socket: str
    pid: int


class CannotListen(Exception):
    """A port or socket is taken; the message says which."""


def record_path() -> Path:
    """Where the command line finds the running sidecar."""
    return runtime_folder() / "sidecar.json"


async def listen(
    app: web.Application, host: str, port: int, path: Path
) -> tuple[web.AppRunner, Listening]:
    """Serve `app` on both; raises `CannotListen`. `runner.cleanup()` ends it."""
    answer_in_format()
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        max_line_size=16 * 1024,
        max_field_size=32 * 1024,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
    )
    try:
        unix = await asyncio.to_thread(open_socket, path)
        await runner.setup()
        await web.SockSite(runner, unix).start()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise CannotListen(f"port {port} on {host} cannot be used: {error.strerror}") from error
    except BaseException:
        await runner.cleanup()
        raise
    taken = next(a[1] for a in runner.addresses if isinstance(a, (tuple, list)))
    return runner, Listening(port=taken, socket=str(path), pid=os.getpid())


def socket_path(explicit: str) -> Path:
    """The Unix socket to open: as told, else in the runtime folder, out of a living one's way."""
    if explicit:
        return Path(explicit).expanduser()
    folder = runtime_folder()
    path = folder / "sidecar.sock"
    if len(os.fsencode(path)) + 12 > MAX_SOCKET_PATH_BYTES:
        # A temporary folder may lie deep, too (macOS, test runners); `/tmp` never does.
        room = MAX_SOCKET_PATH_BYTES - len("/turnout-12345678/sidecar-1234567.sock")
        is_deep = len(os.fsencode(tempfile.gettempdir())) > room
        base = "/tmp" if is_deep else None  # noqa: S108 - mkdtemp makes a folder of our own in it
        folder = Path(tempfile.mkdtemp(prefix=_OWN_FOLDER, dir=base))
        path = folder / "sidecar.sock"
    return folder / f"sidecar-{os.getpid()}.sock" if is_answering(path) else path


def is_answering(path: Path) -> bool:
    """Whether someone accepts connections at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def open_socket(path: Path) -> socket.socket:
    """A listening socket of mode 0600 in a folder of mode 0700; raises `CannotListen`."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise CannotListen(f"the socket path {path} is too long; choose a shorter one")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent == runtime_folder():
            path.parent.chmod(0o700)
        if path.exists() or path.is_symlink():
            _remove_stale(path)
        unix = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            unix.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        raise CannotListen(f"the socket {path} cannot be used: {error.strerror}") from error
    return unix


def write_json(path: Path, listening: Listening) -> None:
    """Write whole or not at all, readable by this user only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(listening))
    fresh.replace(path)


def read_record() -> Listening | None:
    """The running sidecar, or None; a record whose process is gone counts as none."""
    try:
        listening = msgspec.json.decode(record_path().read_bytes(), type=Listening)
        os.kill(listening.pid, 0)
    except (OSError, msgspec.MsgspecError):
        return None
    return listening


def clear(listening: Listening) -> None:
    """Remove our socket and our record, not another's."""
    path = Path(listening.socket)
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        if path.parent.name.startswith(_OWN_FOLDER):
            path.parent.rmdir()
    if (recorded := read_record()) is not None and recorded.pid == listening.pid:
        with contextlib.suppress(OSError):
            record_path().unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise CannotListen(f"{path} is in the way and is no socket")
    if is_answering(path):
        raise CannotListen(f"another sidecar answers at {path}")
    path.unlink(missing_ok=True)
