"""Starting and stopping the two planes, proxy and sidecar, as child processes.

Owns the children from the first to the last: they are started in order, watched, restarted when
they die, and ended whatever ends this process. It never looks into a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnout_rules.folders import runtime_folder

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
RESTART_DELAYS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
STABLE_LIFE_S = 60.0
LOOK_S = 1.0
LOOKS_UNTIL_HUNG = 15
"""A plane touches its ready file once a second. Looks are counted, not seconds: while this process
stands still as well (a suspended machine, a frozen container), nothing counts."""
_CONNECT_TIMEOUT_S = 1.0
_PR_SET_PDEATHSIG = 1  # Linux, prctl(2)


class LaunchError(Exception):
    """A plane did not start; the message says which and what it printed last."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running instance can be reached; also the content of its record on disk."""

    pid: int
    proxy_port: int
    base_url_port: int
    ca_cert: str
    """PEM file of the proxy's own certificate authority."""
    sidecar_port: int = 0
    web_url: str = ""
    metrics_port: int = 0
    """The proxy's Prometheus port; 0: it has none."""
    proxy_host: str = "127.0.0.1"
    auth: str = ""
    """Variable with the `user:password` that the proxy demands; empty: it demands none."""

    @property
    def proxy_url(self) -> str:
        """For `HTTPS_PROXY`, without a password."""
        host = f"[{self.proxy_host}]" if ":" in self.proxy_host else self.proxy_host
        return f"http://{host}:{self.proxy_port}"

    @property
    def base_url(self) -> str:
        """For tools with a base-URL setting, without `/v1`."""
        return f"http://127.0.0.1:{self.base_url_port}"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What to start. A port of None is the settings' own, 0 any free one."""

    rules: Path
    is_lean: bool = False
    port: int | None = None
    base_url_port: int | None = None
    web_port: int | None = None
    sidecar_port: int | None = None
    metrics_port: int | None = None
    """The proxy's own Prometheus port on loopback; None: it has none."""
    verbose: bool = False
    log: Path | None = None
    """The planes' output goes here; None: to this process's own."""


class Instance:
    """Both planes of one launch. `start` and `close` are called once each."""

    def __init__(self, launch: Launch) -> None:
        """Nothing runs yet."""
        self._launch = launch
        # Children by plane name; only start, the watch and close touch it.
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="turnout-")
        self._sidecar: dict[str, Any] = {}
        self._is_closing = False

    async def start(self) -> Running:
        """Start sidecar, then proxy; raises `LaunchError`, after which nothing is left running."""
        try:
            await self._start_sidecar()
            proxy = await self._start_proxy()
        except BaseException:
            await self.close()
            raise
        self._launch = replace(
            self._launch,
            sidecar_port=int(self._sidecar["port"]),
            port=proxy["proxy_port"],
            base_url_port=proxy["base_url_port"],
            web_port=urlsplit(proxy["web_url"]).port or self._launch.web_port,
            metrics_port=proxy["metrics_port"] or self._launch.metrics_port,
        )
        return Running(
            pid=os.getpid(),
            proxy_port=proxy["proxy_port"],
            base_url_port=proxy["base_url_port"],
            ca_cert=proxy["ca_cert"],
            web_url=proxy["web_url"],
            metrics_port=proxy["metrics_port"],
            proxy_host=proxy["proxy_host"],
            auth=proxy["auth"],
            sidecar_port=int(self._sidecar["port"]),
        )

    async def watch(self, say: Callable[[str], None]) -> int:
        """Restart what dies, on the same ports; 0 once the proxy was ended by somebody's wish."""
        sidecar = asyncio.create_task(self._keep("sidecar", self._start_sidecar, say))
        proxy = asyncio.create_task(self._keep("proxy", self._start_proxy, say))
        try:
            done, _ = await asyncio.wait({sidecar, proxy}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            say("the proxy has ended")
            return 0
        finally:
            for task in (sidecar, proxy):
                task.cancel()
            await asyncio.gather(sidecar, proxy, return_exceptions=True)

    async def close(self) -> None:
        """End both planes: asked first, killed after `STOP_TIMEOUT_S`. Safe to call twice."""
        self._is_closing = True
        children = [c for c in self._children.values() if c.returncode is None]
        for child in children:
            child.send_signal(signal.SIGTERM)
        await asyncio.gather(*(self._end(child) for child in children))
        self._folder.cleanup()

    async def _keep(
        self, plane: str, start: Callable[[], Awaitable[dict[str, Any]]], say: Callable[[str], None]
    ) -> None:
        """Restart `plane` when it dies; deaths in a row wait longer, one after a long life not.

        Reads and moves its child. Returns when the proxy ends without an error: it was asked to.
        """
        clock = asyncio.get_running_loop().time
        failures, began = 0, clock()
        while not self._is_closing:
            status = await self._outlive(plane, say)
            if plane == "proxy" and status == 0:
                return
            if clock() - began > STABLE_LIFE_S:
                failures = 0
            delay = RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S) - 1)]
            failures += 1
            say(f"{plane} ended with status {status}; restarting it in {delay:g} s")
            await asyncio.sleep(delay)
            began = clock()
            try:
                ready = await start()
            except LaunchError as error:
                say(str(error))
                continue
            if web_url := ready.get("web_url"):
                say(f"watch it at {web_url}")

    async def _outlive(self, plane: str, say: Callable[[str], None]) -> int:
        """The exit status of `plane`, which is killed if it stands still."""
        child, ready = self._children[plane], self._ready_file(plane)
        last, missed = -1, 0
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    return await child.wait()
            except TimeoutError:
                pass
            beat = await asyncio.to_thread(_touched, ready)
            missed = missed + 1 if beat == last else 0
            last = beat
            if missed >= LOOKS_UNTIL_HUNG:
                say(f"{plane} has stood still for {LOOK_S * missed:.0f} s; killing it")
                _kill(child)
                return await child.wait()

    def _ready_file(self, plane: str) -> Path:
        return Path(self._folder.name) / f"{plane}.json"

    async def _start_sidecar(self) -> dict[str, Any]:
        command = ["turnout_sidecar", "--rules", str(self._launch.rules)]
        if self._launch.sidecar_port is not None:
            command += ["--port", str(self._launch.sidecar_port)]
        self._sidecar = await self._spawn("sidecar", command)
        return self._sidecar

    async def _start_proxy(self) -> dict[str, Any]:
        launch = self._launch
        command = ["turnout_addon", "--rules", str(launch.rules)]
        command += ["--gateway", f"http://127.0.0.1:{self._sidecar['port']}"]
        command += ["--sidecar", f"unix:{self._sidecar['socket']}"]
        for flag, port in (
            ("--port", launch.port),
            ("--base-url-port", launch.base_url_port),
            ("--web-port", launch.web_port),
            ("--metrics-port", launch.metrics_port),
        ):
            if port is not None:
                command += [flag, str(port)]
        command += ["--lean"] * launch.is_lean + ["--verbose"] * launch.verbose
        return await self._spawn("proxy", command)

    async def _spawn(self, plane: str, command: list[str]) -> dict[str, Any]:
        """Start `python -m command…` and wait for what it writes into its ready file."""
        ready = self._ready_file(plane)
        ready.unlink(missing_ok=True)
        log = self._launch.log
        output = log.open("ab") if log else None
        try:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *command, "--ready-file", str(ready)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        finally:
            if output:
                output.close()
        self._children[plane] = child
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                return await _ready(child, ready)
        except TimeoutError:
            await self._end(child)
            raise LaunchError(f"{plane} was not ready after {READY_TIMEOUT_S:g} s") from None
        except ChildProcessError:
            hint = f"; see {log}" if log else ""
            raise LaunchError(f"{plane} ended with status {child.returncode}{hint}") from None

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.wait()
        except TimeoutError:
            _kill(child)
            await child.wait()


@contextlib.asynccontextmanager
async def launched(launch: Launch) -> AsyncIterator[tuple[Instance, Running]]:
    """An instance that runs for the length of the block."""
    instance = Instance(launch)
    running = await instance.start()
    try:
        yield instance, running
    finally:
        await instance.close()


def record_path() -> Path:
    """The record by which `turnout run` finds the instance that `turnout up` started."""
    return runtime_folder() / "turnout.json"


def write_record(running: Running) -> None:
    """Leave the record, readable by this user only; an instance that already runs keeps its own."""
    if read_record() is not None:
        return
    path = record_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(running))
    fresh.chmod(0o600)
    fresh.replace(path)


def remove_record() -> None:
    """Take this process's record away, not another's."""
    try:
        running = msgspec.json.decode(record_path().read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError):
        return
    if running.pid == os.getpid():
        record_path().unlink(missing_ok=True)


def read_record() -> Running | None:
    """The running instance, or None; one whose process or proxy is gone counts as none."""
    try:
        running = msgspec.json.decode(record_path().read_bytes(), type=Running)
        os.kill(running.pid, 0)
        # The number of a process that was killed may be another's by now.
        address = (running.proxy_host, running.proxy_port)
        socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, msgspec.DecodeError):
        return None
    return running


async def _ready(child: asyncio.subprocess.Process, ready: Path) -> dict[str, Any]:
    """Poll for the ready file; raises `ChildProcessError` when the child ends without one."""
    while True:
        if child.returncode is not None:
            raise ChildProcessError
        if content := _read_ready(ready):
            return content
        await asyncio.sleep(0.05)


def _read_ready(ready: Path) -> dict[str, Any] | None:
    """None while the file is missing or half-written."""
    try:
        content: dict[str, Any] = json.loads(ready.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return content


def _touched(ready: Path) -> int:
    try:
        return ready.stat().st_mtime_ns
    except OSError:
        return 0


def _kill(child: asyncio.subprocess.Process) -> None:
    """The whole group, at once: what stands still takes no signal that could be handled."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _die_with_parent() -> None:
    """In the child: take SIGTERM when the parent dies, so that even a SIGKILL leaves nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
