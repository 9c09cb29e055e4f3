"""Owns every backend's state. One function, `advance`, looks at all of it, asks the schedule, and
carries the answer out; whatever changes anything ends with a call of it.

Everything here runs in one event loop, so there are no locks. What takes time (starting, stopping,
planning) is a task that reports back by setting a state and calling `advance`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from turnout_rules.model import Target
from turnout_rules.settings import Settings
from turnout_sidecar import assessment, crashes, diagnosis, refusing
from turnout_sidecar.backend import Backend, BackendStatus, log_path, succeed
from turnout_sidecar.diagnosis import Cause
from turnout_sidecar.engines import engine_for
from turnout_sidecar.engines.base import CannotLaunch
from turnout_sidecar.gauge import Gauge
from turnout_sidecar.lifecycle import Ended, Nursery
from turnout_sidecar.log_ring import LogRing
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.memory import lowered, memory_for
from turnout_sidecar.orphans import Records
from turnout_sidecar.planner import Measurements
from turnout_sidecar.refusing import Refused
from turnout_sidecar.schedule import Schedule
from turnout_sidecar.shrinking import is_same_engine
from turnout_sidecar.states import HOLDS_MEMORY, Memory, Moves, State, Ticket

log = logging.getLogger(__name__)
TICK_S = 0.25
Work = Callable[[Backend], Coroutine[Any, Any, None]]


class Supervisor:
    """`open`, then `advance` happens by itself; `close` leaves nothing running."""

    def __init__(
        self, settings: Settings, *, data_dir: Path, runtime_dir: Path, machine: MachineProbe
    ) -> None:
        """`machine` is what the machine is looked at through."""
        self.settings = settings
        self.withheld: frozenset[str] = frozenset()
        """Variables that no engine gets. Taken at its start."""
        self.backends: dict[str, Backend] = {}
        self.schedule = Schedule()
        self.memory = Memory()
        self.on_grant: Callable[[Ticket], None] = lambda ticket: None
        self.on_refuse: Callable[[Ticket, Refused | None], None] = lambda ticket, refused: None
        """None: it waited too long."""
        self.on_change: Callable[[], None] = lambda: None
        self._data_dir = data_dir
        self._records = Records(runtime_dir / "engines")
        self._known = Measurements(data_dir / assessment.MEASUREMENTS_FILE)
        self._gauge = Gauge(machine)
        self._nursery: Nursery | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Devices whose budget fell below what runs, until it is kept again.
        self._lowered: frozenset[str] = frozenset()
        self._is_closing = False

    async def open(self) -> None:
        """Reap what a dead sidecar left, look at the machine, begin to tick."""
        await asyncio.to_thread(self._records.reap)
        self._nursery = Nursery(self._records)
        await self._gauge.look()
        self._spawn(self._tick())
        self.advance()

    async def close(self) -> None:
        """Stop all engines to the last child; waiters are refused."""
        self._is_closing = True
        for backend in self.backends.values():
            self.refuse_all(backend, Refused(503, "shutting_down", "Turnout is shutting down", 5))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._nursery is not None:
            stops = [
                self._nursery.bury(backend, self.settings.engines.stop_timeout_s)
                for backend in self.backends.values()
            ]
            await asyncio.gather(*stops, return_exceptions=True)
            await self._nursery.close()
        for backend in self.backends.values():
            backend.state = State.STOPPED

    def add(self, target: Target) -> Backend:
        """The backend of `target`, new if need be. Other upstreams share one by their name."""
        is_managed = target.upstream.is_managed
        name = target.name if is_managed else target.upstream.name
        if (backend := self.backends.get(name)) is None:
            path = log_path(self._data_dir, name) if is_managed else None
            ring = LogRing(path, self.settings.engines.log_bytes)
            backend = Backend(name, target, engine_for(target.upstream), self.settings, ring)
            if not is_managed:
                backend.state = State.READY
            self.backends[name] = backend
        return backend

    def use_settings(self, settings: Settings, withheld: frozenset[str]) -> None:
        """New settings count from now on; what an engine was started with, from its next start."""
        if host := self._gauge.host:
            self._lowered |= lowered(self.settings.engines, settings.engines, host)
        self.settings, self.withheld = settings, withheld
        for backend in self.backends.values():
            backend.settings = settings
            backend.log.max_bytes = settings.engines.log_bytes

    def advance(self) -> None:
        """Look at everything, decide, act. Cheap: microseconds a backend."""
        if self._nursery is None or self._is_closing:
            return
        now = time.monotonic()
        self._tidy(now)
        if (host := self._gauge.host) is not None:
            engines, backends = self.settings.engines, self.backends.values()
            self.memory = memory_for(host, engines, backends, self._lowered)
            self._lowered = self.memory.lowered
        standings = {name: backend.standing(now) for name, backend in self.backends.items()}
        moves = self.schedule.advance(standings, self.memory, now)
        self._carry_out(moves)
        self.on_change()

    def status(self, now: float) -> Iterator[BackendStatus]:
        """All managed backends and the others that have been used."""
        for backend in self.backends.values():
            name = backend.name
            yield backend.status(now, self.schedule.running(name), self.schedule.waiting(name))

    def _carry_out(self, moves: Moves) -> None:
        for ticket in moves.late:
            self.on_refuse(ticket, None)
        for name in moves.resume:
            self.backends[name].state = State.READY
        for name in moves.drain:
            backend = self.backends[name]
            backend.state = State.DRAINING
            if other := self.schedule.drains_for(name):
                self._say(backend, f"drains to make room for {other}")
        for name in moves.stop:
            self.stop(self.backends[name])
        for name in moves.sleep:
            self._begin(self.backends[name], State.STOPPING, self._put_to_sleep)
        for name in moves.start:
            backend = self.backends[name]
            self._say(backend, f"starts, {self.schedule.waiting(name)} waiting")
            self._begin(backend, State.STARTING, self._live if not backend.process else self._wake)
        for ticket in moves.grant:
            self.on_grant(ticket)
        for name in moves.misfit:
            self._refuse_misfit(self.backends[name])

    def stop(self, backend: Backend) -> None:
        """Now, whatever it does."""
        self._say(backend, "stops")
        self._begin(backend, State.STOPPING, self._end)

    async def stop_and_wait(self, backend: Backend) -> None:
        """Let requests in flight end for `stop_timeout_s`, then stop; returns when it has."""
        if backend.state is State.SLEEPING or backend.state is State.STARTING:
            self.stop(backend)
        elif backend.state is State.READY:
            backend.is_unwanted = True
            self.advance()
        until = time.monotonic() + self.settings.engines.stop_timeout_s
        while backend.state in HOLDS_MEMORY and backend.state is not State.STARTING:
            if backend.state is State.DRAINING and time.monotonic() > until:
                self.stop(backend)
            await asyncio.sleep(0.05)

    def configure(self, backend: Backend, target: Target) -> None:
        """Give it new settings; an engine that must be started anew for them has a successor."""
        if is_same_engine(backend.replacement or backend.target, target):
            backend.move_to(target)
            return
        if self.schedule.running(backend.name):
            backend = self._succeed(backend)
        backend.replacement = target
        backend.crash_streak = 0
        self._leave(backend, "restarts with new settings")

    def remove(self, backend: Backend) -> None:
        """It is in the rules no more: forgotten at once if stopped, else when it has drained."""
        if backend.is_removed:
            return
        backend.is_removed = True
        self.refuse_all(backend, refusing.removed(backend.name))
        self._leave(backend, "is in the rules no more")

    def _leave(self, backend: Backend, why: str) -> None:
        """It ends: at once where nobody is served, a load that nobody wants any more included."""
        if backend.state in (State.STOPPED, State.FAILED):
            self._has_stopped(backend)
            return
        self._say(backend, why)
        if backend.state is State.STARTING:
            self.stop(backend)
        else:
            backend.is_unwanted = True

    def _succeed(self, old: Backend) -> Backend:
        """What takes the place and the line of one that still serves, and ends under another name.

        Where there is memory for both, nobody waits for that end.
        """
        name = old.name
        new = succeed(old, self.backends)
        self.schedule.retire(name, old.name)
        self.backends[name], self.backends[old.name] = new, old
        self._leave(old, "serves what it has, and ends: its settings were changed")
        return new

    def _begin(self, backend: Backend, state: State, work: Work) -> None:
        backend.state = state
        task = self._spawn(work(backend))
        if state is State.STARTING and work == self._live:
            backend.life = task

    async def _live(self, backend: Backend) -> None:
        """Bring it up, watch it, and see to its end. Cancelled when it is stopped."""
        assert self._nursery is not None
        began = time.monotonic()
        try:
            await self._nursery.bring_up(backend, self.withheld)
            # From `ready` on only what is measured counts, so measure what it has taken first.
            await self._gauge.look()
            now = time.monotonic()
            backend.start_cost_s, backend.ready_since, backend.last_used = now - began, now, now
            backend.state, backend.is_wanted, backend.first_served = State.READY, False, None
            backend.message = backend.remedy = ""
            backend.learn()
            self._spawn(
                asyncio.to_thread(assessment.remember, backend, self._gauge.machine, self._known)
            )
            self._say(backend, f"is ready after {now - began:.1f} s (pid {backend.process.pid})")  # type: ignore[union-attr]
            self.advance()
            await self._nursery.watch(backend, lambda: self.schedule.running(backend.name) > 0)
        except Ended as ended:
            await self._crashed(backend, ended)
        except (CannotLaunch, OSError) as error:
            await self._cannot_launch(backend, str(error))
        except Exception as error:  # a stuck `starting` would let its waiters hang
            log.exception("%s: its life ended in an unexpected way", backend.name)
            await self._cannot_launch(backend, f"{type(error).__name__}: {error}")

    async def _cannot_launch(self, backend: Backend, message: str) -> None:
        assert self._nursery is not None
        await self._nursery.bury(backend, 2.0)
        crashes.fail(backend, Cause(kind="cannot_launch", message=message))
        self._after_failure(backend)

    async def _crashed(self, backend: Backend, ended: Ended) -> None:
        """Bury it, find out why, and decide whether and when it may be tried again."""
        assert self._nursery is not None
        was_starting, died = backend.state is State.STARTING, time.monotonic()
        backend.state = State.STOPPING
        await self._nursery.bury(backend, 0.0 if ended.reason == "exit" else 2.0)
        lines = backend.log.tail_of_life(diagnosis.LINES_READ)
        cause = await asyncio.to_thread(diagnosis.cause_of, ended.reason, ended.code, lines)
        crashes.judge(backend, cause, ended, died=died, was_starting=was_starting)
        self._say(backend, f"crashed: {backend.message}", is_bad=True)
        self._after_failure(backend)
        await self._gauge.memory_back(backend)

    def _after_failure(self, backend: Backend) -> None:
        if backend.is_refusing(time.monotonic()):
            self.refuse_all(backend, crashes.refusal(backend))
            backend.is_wanted = False
        elif backend.state is State.STOPPED:
            backend.is_wanted |= backend.target.model.preload
        self._has_stopped(backend)

    async def _end(self, backend: Backend) -> None:
        """Stop the engine and wait until its memory is free again."""
        assert self._nursery is not None
        if backend.life is not None:
            backend.life.cancel()
            await asyncio.gather(backend.life, return_exceptions=True)
        free = self._gauge.host
        try:
            await self._nursery.bury(backend, self.settings.engines.stop_timeout_s)
            await self._gauge.memory_back(backend, free)
        finally:
            backend.state = State.STOPPED
            backend.is_unwanted = False
            backend.crash_streak = 0
            self._has_stopped(backend)

    def _has_stopped(self, backend: Backend) -> None:
        """New settings take effect now; a removed backend is forgotten."""
        backend.life, backend.need_bytes = None, None
        if backend.is_removed:
            self.backends.pop(backend.name, None)
        elif backend.replacement is not None:
            backend.target = backend.current = backend.replacement
            backend.engine = engine_for(backend.target.upstream)
            backend.replacement, backend.has_shrunk = None, False
            backend.need_bytes, backend.learned_bytes, backend.not_before = None, 0, 0.0
            backend.is_unwanted = False
            backend.is_wanted |= backend.target.model.preload
            if backend.state is State.FAILED:
                backend.state = State.STOPPED
        self.advance()

    async def _put_to_sleep(self, backend: Backend) -> None:
        assert self._nursery is not None
        if await self._nursery.ask(backend, backend.engine.sleep_requests):
            await self._gauge.memory_back(backend)
            if backend.state is State.STOPPING and backend.process is not None:
                backend.state = State.SLEEPING
                self._say(backend, "sleeps")
                self.advance()
        elif backend.state is State.STOPPING:
            await self._end(backend)

    async def _wake(self, backend: Backend) -> None:
        """Asleep, `/health` says 200 and chats hang: so wake first, then believe it."""
        assert self._nursery is not None
        began = time.monotonic()
        if await self._nursery.ask(backend, backend.engine.wake_requests):
            now = time.monotonic()
            if backend.state is State.STARTING and backend.process is not None:
                backend.state, backend.is_wanted = State.READY, False
                backend.start_cost_s, backend.ready_since, backend.last_used = now - began, now, now
                self._say(backend, f"woke after {now - began:.1f} s")
                self.advance()
        elif backend.state is State.STARTING:
            await self._end(backend)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._gauge.is_stale(time.monotonic()):
                await self._gauge.look()
            self.advance()

    def _tidy(self, now: float) -> None:
        """Back-offs that are over; plans that somebody needs."""
        for backend in tuple(self.backends.values()):
            if backend.state is State.FAILED and not backend.is_resting(now):
                backend.state = State.STOPPED
            is_wanted = backend.is_wanted or self.schedule.waiting(backend.name)
            is_unplanned = backend.need_bytes is None and not backend.is_planning
            if is_wanted and is_unplanned and backend.is_managed:
                backend.is_planning = True
                self._spawn(self._plan(backend))

    async def _plan(self, backend: Backend) -> None:
        planned = backend.current
        try:
            need = await asyncio.to_thread(
                assessment.need_of, planned, self._gauge.machine, self._known
            )
            if backend.current is not planned:
                return  # edited meanwhile, and planned anew
            backend.device = need.device
            backend.need_bytes = max(need.total_bytes, backend.learned_bytes)
            backend.advise = need.advise
            if need.obstacle:
                self._refuse_plan(backend, need.obstacle, need.advise(backend.need_bytes))
        except Exception:  # an unreadable model is its engine's to report
            log.exception("%s: no plan could be made", backend.name)
            backend.need_bytes = backend.learned_bytes
        finally:
            backend.is_planning = False
        self.advance()

    def _refuse_misfit(self, backend: Backend) -> None:
        free = self.memory.free.get(backend.device, 0)
        message = refusing.misfit(backend.need_bytes or 0, backend.device, free)
        self._refuse_plan(backend, message, backend.advise(free))

    def _refuse_plan(self, backend: Backend, why: str, remedy: str) -> None:
        """Not started: said with the numbers, and planned anew when it is asked for again."""
        backend.message, backend.remedy = f"{backend.name} {why}", remedy
        text = f"{backend.message}; {remedy}" if remedy else backend.message
        self._say(backend, f"does not fit: {text}", is_bad=True)
        backend.is_wanted, backend.need_bytes = False, None
        self.refuse_all(backend, Refused(503, "does_not_fit", text, 30.0))

    def refuse_all(self, backend: Backend, refused: Refused) -> None:
        for ticket in self.schedule.drop(backend.name):
            self.on_refuse(ticket, refused)

    def _say(self, backend: Backend, text: str, *, is_bad: bool = False) -> None:
        log.log(logging.WARNING if is_bad else logging.INFO, "%s %s", backend.name, text)
        backend.log.note(text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._has_finished)
        return task

    def _has_finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            if error := task.exception():
                log.error("a task of the supervisor failed", exc_info=error)
