"""The life of one engine from spawn to burial, as awaited steps. Decides nothing about others.

`bring_up` returns when the engine is ready or raises `Ended`; `watch` returns when it has ended
unasked. Both leave a dead engine's process to `bury`. The supervisor decides what follows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp

from turnout_sidecar.backend import Backend
from turnout_sidecar.engines.base import Health, Launch, Place, Request
from turnout_sidecar.engines.environment import engine_environment
from turnout_sidecar.orphans import Records
from turnout_sidecar.process import Activity, EngineProcess, free_port, spawn
from turnout_sidecar.startable import launch_of

log = logging.getLogger(__name__)
POLL_S = 0.1
WATCH_S = 2.0
PROBE_TIMEOUT_S = 2.0
HUNG_AFTER_S = 15.0
"""A ready engine that answers no health check, sends nothing and uses no CPU so long is hung."""
SPINNING_AFTER_S = 60.0
"""The same of one that does use CPU. While it serves, it has until its requests' own limit: a
simple server checks nobody's health while it computes."""
WAKE_TIMEOUT_S = 60.0


class Ended(Exception):
    """The engine did not become ready, or is not any more."""

    def __init__(self, reason: Literal["exit", "stalled", "hung", "dead"], code: int | None):
        """`code` is the exit code if the process ended by itself."""
        super().__init__(f"{reason}, exit code {code}")
        self.reason = reason
        self.code = code


@dataclass(slots=True)
class Cores:
    """Which CPUs engines get, and how many threads that makes."""

    cpus: str
    threads: int


class Nursery:
    """What lives share: an HTTP session and the records. One per supervisor."""

    def __init__(self, records: Records) -> None:
        """Must be made inside the event loop."""
        self.records = records
        self._session = aiohttp.ClientSession(
            trust_env=False, timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        )

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def bring_up(self, backend: Backend, withheld: frozenset[str]) -> None:
        """Spawn and wait until ready; raises `Ended`, `CannotLaunch` or OSError.

        `withheld`: variables that hold our keys and passwords, which no engine gets.
        """
        backend.port = free_port()
        cores = engine_cores(backend.settings.engines.router_cores)
        place = Place(
            port=backend.port,
            threads=cores.threads,
            device=backend.device,
            environ=engine_environment(os.environ, withheld),
        )
        launch = await asyncio.to_thread(launch_of, backend.current, place, os.environ)
        backend.starts += 1
        backend.log.begin(f"starting: {' '.join(launch.command)}")
        cpus = backend.current.model.cpu_set or cores.cpus
        process = await self._spawned(backend, launch, place.environ, cpus)
        self.records.write(backend.name, process.marker, process.pid)
        await self._until_ready(backend, process)

    async def watch(self, backend: Backend, is_serving: Callable[[], bool]) -> None:
        """Look after a ready engine; raises `Ended` when it is ready no more."""
        process = backend.process
        assert process is not None
        answered = moved = time.monotonic()
        activity = backend.activity
        while True:
            try:
                code = await asyncio.wait_for(process.wait(), WATCH_S)
            except TimeoutError:
                pass
            else:
                raise Ended("exit", code)
            seen = await asyncio.to_thread(process.activity)
            health = await self.probe(backend)
            if health == "dead" and await self.probe(backend) == "dead":
                raise Ended("dead", None)
            now = time.monotonic()
            answered = now if health == "ready" else max(answered, backend.flowed)
            moved = now if seen.is_beyond(activity) else max(moved, answered)
            limit_s = SPINNING_AFTER_S
            if is_serving():
                limit_s = max(limit_s, backend.settings.sidecar.first_byte_timeout_ms / 1000)
            is_still = now - moved > max(HUNG_AFTER_S, PROBE_TIMEOUT_S * 3)
            if is_still or now - answered > limit_s:
                raise Ended("hung", None)
            activity = backend.activity = seen
            backend.outgrow()

    async def bury(self, backend: Backend, timeout_s: float) -> None:
        """End the process and its descendants; nothing of it is left afterwards."""
        if (process := backend.process) is None:
            return
        await process.stop(timeout_s)
        self.records.forget(process.marker)
        backend.process = None
        backend.port = 0
        backend.activity = Activity()

    async def probe(self, backend: Backend) -> Health | Literal["silent"]:
        """One health check; `silent`: nothing answered."""
        url = backend.root_url + backend.engine.health_path
        try:
            async with self._session.get(url) as response:
                return backend.engine.health(response.status)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return "silent"

    async def ask(self, backend: Backend, requests: tuple[Request, ...]) -> bool:
        """Send administrative requests one after the other; False as soon as one fails."""
        timeout = aiohttp.ClientTimeout(total=WAKE_TIMEOUT_S)
        for request in requests:
            url = backend.root_url + request.path
            try:
                async with self._session.request(request.method, url, timeout=timeout) as answer:
                    if answer.status >= 400:
                        return False
            except (aiohttp.ClientError, OSError, TimeoutError):
                return False
        return True

    async def _spawned(
        self, backend: Backend, launch: Launch, environ: Mapping[str, str], cpus: str
    ) -> EngineProcess:
        """A process that exists is always known, even if we are cancelled while it is made."""
        making = asyncio.ensure_future(
            spawn(
                launch.command,
                name=backend.name,
                env={**environ, **launch.env},
                cpus=cpus,
                log=backend.log,
            )
        )
        try:
            backend.process = await asyncio.shield(making)
        except asyncio.CancelledError:
            backend.process = await making
            raise
        return backend.process

    async def _until_ready(self, backend: Backend, process: EngineProcess) -> None:
        """Progress keeps a start alive, however long it takes; silence ends it."""
        progress, last = time.monotonic(), Activity()
        looked = 0.0
        waiting = asyncio.ensure_future(process.wait())
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=POLL_S)
                if done:
                    raise Ended("exit", waiting.result())
                if await self.probe(backend) == "ready":
                    backend.activity = await asyncio.to_thread(process.activity)
                    return
                now = time.monotonic()
                if now - looked < min(1.0, backend.stall_s / 4):
                    continue
                looked, seen = now, await asyncio.to_thread(process.activity)
                backend.activity = seen
                if seen.is_beyond(last):
                    progress, last = now, seen
                elif now - progress > backend.stall_s:
                    raise Ended("stalled", None)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


def engine_cores(router_cores: int) -> Cores:
    """All cores this process may use but the router's; nothing is pinned on a single core."""
    try:
        available = sorted(os.sched_getaffinity(0))
    except AttributeError:
        return Cores("", max(1, (os.cpu_count() or 1) - router_cores))
    count = len(available)
    kept = min(router_cores, count // 2)
    mine = available[kept:]
    return Cores(",".join(map(str, mine)), max(1, len(mine)))
