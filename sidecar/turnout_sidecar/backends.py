"""The gateway's way to engines: a lease is room at a target for one request.

Local engines are started, queued for and stopped behind it; for everything else it only keeps the
concurrency limit. Requests themselves never pass through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnout_rules.credentials import secret_variables
from turnout_rules.model import Target
from turnout_rules.settings import Settings
from turnout_sidecar import crashes, refusing
from turnout_sidecar.backend import Backend, BackendStatus
from turnout_sidecar.engines.external import UNLIMITED
from turnout_sidecar.queueing import QueueFull
from turnout_sidecar.refusing import Lease, Refused, Waiting
from turnout_sidecar.states import State, Ticket
from turnout_sidecar.supervisor import Supervisor

if TYPE_CHECKING:
    from turnout_rules.table import Table
    from turnout_sidecar.machine import MachineProbe

__all__ = ["BackendStatus", "Backends", "Lease", "Refused", "Waiting"]


@dataclass(slots=True, eq=False)
class _Waiter:
    """One call of `lease` that waits."""

    granted: asyncio.Future[None]
    on_wait: Callable[[Waiting], None] | None
    told: Waiting | None = None


class Backends:
    """All backends of one sidecar. `start` before the first lease, `close` at the end."""

    def __init__(
        self, settings: Settings, *, data_dir: Path, runtime_dir: Path, machine: MachineProbe
    ) -> None:
        """Nothing is started or read before `start`."""
        self._settings = settings
        self._supervisor = Supervisor(
            settings, data_dir=data_dir, runtime_dir=runtime_dir, machine=machine
        )
        self._supervisor.on_grant = self._grant
        self._supervisor.on_refuse = self._refuse
        self._supervisor.on_change = self._tell_waiters
        self._waiters: dict[Ticket, _Waiter] = {}

    async def start(self) -> None:
        """Reap left-overs of a dead sidecar, then begin; preloads start by themselves."""
        await self._supervisor.open()

    async def close(self) -> None:
        """Refuse who waits, stop every engine to its last child."""
        await self._supervisor.close()

    def use_table(self, table: Table, settings: Settings | None = None) -> None:
        """Take the managed upstreams of `table`: new ones appear, changed ones restart when
        they are free, removed ones end when they are. None: the settings stay as they are."""
        self._settings = settings or self._settings
        withheld = secret_variables(table.upstreams, self._settings)
        self._supervisor.use_settings(self._settings, withheld)
        wanted = {}
        for upstream in table.upstreams.values():
            if upstream.is_managed:
                for model in upstream.models.values():
                    name = f"{upstream.name}/{model.name}"
                    wanted[name] = Target(name, upstream, model)
        for name, target in wanted.items():
            is_new = name not in self._supervisor.backends
            backend = self._supervisor.add(target)
            backend.is_removed = False
            self._supervisor.configure(backend, target)
            if is_new and target.model.preload:
                backend.is_wanted = True
        for name, backend in tuple(self._supervisor.backends.items()):
            if backend.is_managed and name not in wanted:
                self._supervisor.remove(backend)
            elif not backend.is_managed and (known := table.upstreams.get(name)):
                changed = Target(backend.target.name, known, backend.target.model)
                backend.target = backend.current = changed
        self._supervisor.advance()

    @contextlib.asynccontextmanager
    async def lease(
        self,
        target: Target,
        *,
        priority: str = "interactive",
        client: str = "",
        timeout_s: float,
        on_wait: Callable[[Waiting], None] | None = None,
    ) -> AsyncIterator[Lease]:
        """Wait for room at `target`, until its engine runs if it is ours; raises `Refused`."""
        backend = self._backend_of(target)
        if not backend.is_managed and backend.engine.seats(target) >= UNLIMITED:
            yield Lease(
                base_url=target.upstream.base_url,
                model=target.model.upstream_model,
                target=target.name,
            )
            return
        ticket = Ticket(
            backend=backend.name,
            client=client,
            is_batch=priority == "batch",
            arrived=time.monotonic(),
            timeout_s=timeout_s,
            limit_s=self._settings.sidecar.first_byte_timeout_ms / 1000,
        )
        await self._wait_for_room(ticket, backend, on_wait)
        # New settings may have put another in its place meanwhile.
        backend = self._supervisor.backends[ticket.backend]
        served = backend.current if backend.is_managed else target
        try:
            yield Lease(
                base_url=backend.base_url,
                model=backend.engine.served_name(served),
                target=target.name,
                on_piece=backend.has_flowed,
            )
        finally:
            self._release(ticket)

    def status(self) -> list[BackendStatus]:
        """All backends, in the order of the rules."""
        return list(self._supervisor.status(time.monotonic()))

    async def start_backend(self, name: str) -> None:
        """Start it and wait until it is ready; raises `Refused` if it cannot be."""
        backend = self._known(name)
        limit_s = self._settings.sidecar.first_byte_timeout_ms / 1000
        async with self.lease(backend.target, client="turnout start", timeout_s=limit_s):
            pass

    async def stop_backend(self, name: str) -> None:
        """Let it finish what runs for a while, then stop it; waiters are refused."""
        backend = self._known(name)
        refused = Refused(503, "backend_stopped", f"{name} was stopped by hand", 1.0)
        backend.is_wanted = False
        self._supervisor.refuse_all(backend, refused)
        await self._supervisor.stop_and_wait(backend)

    def logs(self, name: str, lines: int) -> list[str]:
        """The last lines of its output."""
        return self._known(name).log.tail(lines)

    async def follow_logs(self, name: str) -> AsyncIterator[str]:
        """Further lines as they come."""
        async for line in self._known(name).log.follow():
            yield line

    async def _wait_for_room(
        self, ticket: Ticket, backend: Backend, on_wait: Callable[[Waiting], None] | None
    ) -> None:
        now = time.monotonic()
        if backend.is_refusing(now):
            raise crashes.refusal(backend)
        try:
            self._supervisor.schedule.join(ticket, backend.standing(now))
        except QueueFull as full:
            seats = backend.engine.seats(backend.current)
            raise refusing.queue_full(backend.name, full.waiting, seats) from None
        granted = asyncio.get_running_loop().create_future()
        self._waiters[ticket] = _Waiter(granted, on_wait)
        try:
            self._supervisor.advance()
            await granted
        except asyncio.CancelledError:
            if not self._supervisor.schedule.leave(ticket) and _is_granted(granted):
                self._release(ticket)
            self._supervisor.advance()
            raise
        finally:
            self._waiters.pop(ticket, None)

    def _release(self, ticket: Ticket) -> None:
        self._supervisor.schedule.release(ticket)
        if (backend := self._supervisor.backends.get(ticket.backend)) is not None:
            backend.last_used = time.monotonic()
            if backend.first_served is None:
                backend.first_served = backend.last_used
        self._supervisor.advance()

    def _grant(self, ticket: Ticket) -> None:
        waiter = self._waiters.get(ticket)
        if waiter is None or waiter.granted.done():
            # It left between the decision and now.
            self._supervisor.schedule.release(ticket)
            return
        waiter.granted.set_result(None)

    def _refuse(self, ticket: Ticket, refused: Refused | None) -> None:
        waiter = self._waiters.get(ticket)
        if waiter is None or waiter.granted.done():
            return
        if refused is None:
            backend = self._supervisor.backends.get(ticket.backend)
            state = backend.state if backend else State.STOPPED
            waited_s = time.monotonic() - ticket.arrived
            ahead = waiter.told.position if waiter.told else 0
            guard = self._guard(backend)
            refused = refusing.late(ticket.backend, state, waited_s, ahead, guard)
        waiter.granted.set_exception(refused)

    def _tell_waiters(self) -> None:
        schedule = self._supervisor.schedule
        for ticket, waiter in tuple(self._waiters.items()):
            backend = self._supervisor.backends.get(ticket.backend)
            if waiter.granted.done() or backend is None:
                continue
            told = refusing.describe(
                ticket.backend,
                backend.state,
                max(0, schedule.position(ticket)),
                self._guard(backend),
                schedule.drains_for(ticket.backend),
            )
            if told != waiter.told:
                waiter.told = told
                if waiter.on_wait is not None:
                    waiter.on_wait(told)

    def _guard(self, backend: Backend | None) -> str:
        return self._supervisor.memory.guard if backend and backend.is_managed else ""

    def _backend_of(self, target: Target) -> Backend:
        """A request may still hold rules that name an engine which the newest ones do not."""
        if not target.upstream.is_managed:
            return self._supervisor.add(target)
        backend = self._supervisor.backends.get(target.name)
        if backend is None or backend.is_removed:
            raise refusing.removed(target.name)
        return backend

    def _known(self, name: str) -> Backend:
        backend = self._supervisor.backends.get(name)
        if backend is None or not backend.is_managed:
            raise Refused(404, "unknown_backend", f"there is no local engine {name!r}")
        return backend


def _is_granted(future: asyncio.Future[None]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
