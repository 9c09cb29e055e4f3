"""One engine process: started in its own session, watched, and killed to the last descendant.

Knows processes, pipes and signals; knows nothing of models, queues or HTTP. Every process it
starts carries a token in its environment, and only what carries the token is ever killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from turnout_sidecar.log_ring import LogRing

MARKER = "TURNOUT_BACKEND"
"""Environment variable of every engine process and its children: `<backend>#<token>`."""
_WRAPPER = Path(__file__).parent / "runners" / "exec_engine.py"
_OOM_SCORE = 600
"""Above every desktop program's, so that the kernel takes the engine first."""
_NICE = 5


@dataclass(frozen=True, slots=True)
class Activity:
    """What an engine's processes used so far; growth between two looks is progress."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    lines: int = 0

    def is_beyond(self, earlier: Activity) -> bool:
        """Whether something happened since `earlier`."""
        return (
            self.lines > earlier.lines
            or self.cpu_s > earlier.cpu_s + 0.05
            or self.rss_bytes > earlier.rss_bytes + 1024 * 1024
        )


class EngineProcess:
    """A running engine. Made by `spawn`; `exit_code` is None while it lives."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: asyncio.StreamReader,
        pipe: asyncio.ReadTransport,
        marker: str,
        log: LogRing,
    ) -> None:
        """Private: use `spawn`."""
        self._process = process
        self.marker = marker
        self._pipe = pipe
        self.pid = process.pid
        self.log = log
        self._pump = asyncio.create_task(self._read_output(output))

    @property
    def exit_code(self) -> int | None:
        """As the shell counts it, negative for signals; None: still running."""
        return self._process.returncode

    async def wait(self) -> int:
        """Until the process itself has ended and its last words are in the log."""
        code = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            # A surviving grandchild may hold the pipe open for ever.
            await asyncio.wait_for(asyncio.shield(self._pump), 0.5)
        return code

    async def stop(self, timeout_s: float) -> None:
        """SIGTERM to the group, SIGKILL after `timeout_s`, then whatever escaped the group."""
        family = await asyncio.to_thread(descendants, self.pid)
        self._signal_group(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), max(timeout_s, 0.05))
        except TimeoutError:
            self.log.note(f"did not end within {timeout_s:g} s of SIGTERM, killing it")
        self._signal_group(signal.SIGKILL)
        await self._process.wait()
        await asyncio.to_thread(kill_marked, self.marker, family)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._pump), 0.5)
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._pipe.close()

    def activity(self) -> Activity:
        """CPU time, memory and lines of the whole family. Blocking, some milliseconds."""
        cpu_s, rss = 0.0, 0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    cpu_s += times.user + times.system
                    rss += process.memory_info().rss
        return Activity(cpu_s, rss, self.log.lines_seen)

    def _signal_group(self, number: int) -> None:
        # Once the leader is reaped its number may be anybody's; what is left carries the marker.
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _read_output(self, output: asyncio.StreamReader) -> None:
        while data := await output.read(65_536):
            self.log.feed(data)


async def spawn(
    command: Sequence[str],
    *,
    name: str,
    env: Mapping[str, str],
    cpus: str,
    log: LogRing,
) -> EngineProcess:
    """Start `command` behind the exec wrapper; raises OSError if not even that can run."""
    marker = f"{name}#{secrets.token_hex(8)}"
    # A pipe of our own: with asyncio's, `wait` would wait for whoever else holds it open.
    read_end, write_end = os.pipe()
    try:
        process = await _execute(command, {**env, MARKER: marker}, cpus, write_end)
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    output = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(read_end, "rb", 0)
    )
    return EngineProcess(process, output, pipe, marker, log)


async def _execute(
    command: Sequence[str], env: Mapping[str, str], cpus: str, stdout: int
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-E", str(_WRAPPER), "--parent", str(os.getpid())),
        *("--cpus", cpus, "--nice", str(_NICE), "--oom-score", str(_OOM_SCORE), "--", *command),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def descendants(pid: int) -> list[psutil.Process]:
    """All living children of children of `pid`."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def kill_marked(marker: str, also: Sequence[psutil.Process] = ()) -> int:
    """Kill every process whose environment carries `marker`; those of `also` if they still do.

    Children that cleaned their environment are only known from `also`: psutil compares start
    times, so a recycled number is never hit. Returns how many were killed.
    """
    victims = {p.pid: p for p in also if p.is_running()}
    victims |= {p.pid: p for p in marked(lambda value: value == marker)}
    for process in victims.values():
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(list(victims.values()), timeout=5)
    return len(victims)


def marked(is_wanted: Callable[[str], bool]) -> list[psutil.Process]:
    """Processes whose marker satisfies `is_wanted`, zombies left out."""
    found = []
    for process in psutil.process_iter():
        value = marker_of(process)
        if value and is_wanted(value):
            found.append(process)
    return found


def marker_of(process: psutil.Process) -> str:
    """The engine marker in a process's environment; empty if none can be read."""
    if process.pid == os.getpid():
        return ""
    try:
        return process.environ().get(MARKER, "")
    except (psutil.Error, OSError):
        return ""
