"""One backend as the supervisor keeps it: settings, state, process, history. No behaviour of time.

Only the supervisor and the life it runs for a backend write here, all in one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from turnout_rules.model import Target
from turnout_rules.settings import Settings
from turnout_sidecar.engines.base import Engine
from turnout_sidecar.log_ring import LogRing
from turnout_sidecar.process import Activity, EngineProcess
from turnout_sidecar.shrinking import moved_to
from turnout_sidecar.states import Standing, State

LONG_REST_S = 5.0
"""Requests wait through shorter back-offs; longer ones are answered at once."""


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One backend for people, HTTP and metrics."""

    name: str
    engine: str
    state: str
    model: str = ""
    running: int = 0
    waiting: int = 0
    seats: int = 0
    queue_length: int = 0
    device: str = ""
    need_bytes: int = 0
    rss_bytes: int = 0
    pid: int | None = None
    base_url: str = ""
    starts: int = 0
    crashes: int = 0
    is_pinned: bool = False
    idle_s: float | None = None
    """Seconds since the last request's end; None: not ready."""
    ttl_s: float = 0.0
    start_cost_s: float = 0.0
    message: str = ""
    """Why it failed or waits, in plain words."""
    remedy: str = ""
    retry_in_s: float = 0.0


@dataclass(slots=True, eq=False)
class Backend:
    """The record. `target` is as configured; `current` has what retries made smaller."""

    name: str
    target: Target
    engine: Engine
    settings: Settings
    log: LogRing
    state: State = State.STOPPED
    current: Target = field(init=False)
    need_bytes: int | None = None
    """None: not planned yet."""
    learned_bytes: int = 0
    """What it was seen to hold on the CPU; counts where the plan knows less."""
    device: str = "cpu"
    advise: Callable[[int], str] = lambda free_bytes: ""
    is_planning: bool = False
    is_wanted: bool = False
    is_unwanted: bool = False
    is_removed: bool = False
    replacement: Target | None = None
    """Settings that take effect once it has stopped."""
    life: asyncio.Task[None] | None = None
    process: EngineProcess | None = None
    port: int = 0
    activity: Activity = field(default_factory=Activity)
    starts: int = 0
    crashes: int = 0
    crash_streak: int = 0
    has_shrunk: bool = False
    ready_since: float = 0.0
    last_used: float = 0.0
    first_served: float | None = None
    """When the first request of this life had ended."""
    flowed: float = 0.0
    """When the last piece of an answer came from it."""
    start_cost_s: float = 0.0
    not_before: float = 0.0
    message: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        """Nothing has been made smaller yet."""
        self.current = self.target

    @property
    def is_managed(self) -> bool:
        """Whether it is started and stopped here."""
        return self.target.upstream.is_managed

    @property
    def base_url(self) -> str:
        """Where it answers; empty while it has no port."""
        if not self.is_managed:
            return self.target.upstream.base_url
        return f"http://127.0.0.1:{self.port}{self.engine.api_path}" if self.port else ""

    @property
    def root_url(self) -> str:
        """Where its administration answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def queue_length(self) -> int:
        """Requests that may wait."""
        own = self.target.model.queue
        return self.settings.sidecar.queue_length if own is None else own

    @property
    def ttl_s(self) -> float:
        """Idle seconds until it stops; 0: never."""
        own = self.target.model.ttl_s
        return self.settings.engines.ttl_s if own is None else own

    @property
    def stall_s(self) -> float:
        """Seconds without progress after which a start is stuck."""
        return self.target.model.start_timeout_s or self.settings.engines.stall_timeout_s

    def is_resting(self, now: float) -> bool:
        """Whether it may not be started yet."""
        return now < self.not_before

    def is_refusing(self, now: float) -> bool:
        """Whether requests are answered at once instead of waiting for the back-off."""
        return self.state is State.FAILED and self.not_before - now > LONG_REST_S

    def move_to(self, target: Target) -> None:
        """Settings that mean the same engine, which stays as small as a retry made it."""
        if self.replacement is not None:
            self.replacement = target
        else:
            self.current = moved_to(target, self.current, self.target)
            self.target = target

    def has_flowed(self) -> None:
        """A piece of an answer came."""
        self.flowed = time.monotonic()

    def learn(self) -> None:
        """Believe what was measured where the plan had promised less."""
        if self.device == "cpu":
            self.learned_bytes = max(self.learned_bytes, self.activity.rss_bytes)
            self.need_bytes = max(self.need_bytes or 0, self.learned_bytes)

    def outgrow(self) -> None:
        """While it runs, what it holds counts, leaks included; the next start is planned anew."""
        if self.device == "cpu":
            self.need_bytes = max(self.need_bytes or 0, self.activity.rss_bytes)

    def standing(self, now: float) -> Standing:
        """What the schedule sees. Unplanned or resting counts as failed: not startable."""
        state = self.state
        if state is State.STOPPED and (self.need_bytes is None or self.is_resting(now)):
            state = State.FAILED
        return Standing(
            name=self.name,
            state=state,
            seats=self.engine.seats(self.current),
            queue_length=self.queue_length,
            need_bytes=self.need_bytes or 0,
            device=self.device,
            is_pinned=self.target.model.pin,
            is_wanted=self.is_wanted,
            is_remote=not self.is_managed,
            is_unwanted=self.is_unwanted,
            can_sleep=self.engine.can_sleep(self.current.model),
            last_used=self.last_used,
            ready_since=self.ready_since,
            start_cost_s=self.start_cost_s,
            ttl_s=self.ttl_s if self.is_managed else 0.0,
        )

    def status(self, now: float, running: int, waiting: int) -> BackendStatus:
        """For people, HTTP and metrics."""
        return BackendStatus(
            name=self.name,
            engine=self.engine.name,
            state=str(self.state),
            model=self.engine.served_name(self.current),
            running=running,
            waiting=waiting,
            seats=self.engine.seats(self.current),
            queue_length=self.queue_length,
            device=self.device if self.is_managed else "",
            need_bytes=self.need_bytes or 0,
            rss_bytes=self.activity.rss_bytes,
            pid=self.process.pid if self.process else None,
            base_url=self.base_url,
            starts=self.starts,
            crashes=self.crashes,
            is_pinned=self.target.model.pin,
            idle_s=now - self.last_used if self.state is State.READY and not running else None,
            ttl_s=self.ttl_s,
            start_cost_s=self.start_cost_s,
            message=self.message,
            remedy=self.remedy,
            retry_in_s=max(0.0, self.not_before - now),
        )


def succeed(old: Backend, taken: Container[str]) -> Backend:
    """A backend for the place of `old`, which is to end and gets another name, none of `taken`."""
    name, number = old.name, 1
    while f"{name}~{number}" in taken:
        number += 1
    log = LogRing(old.log.path, old.log.max_bytes)
    new = Backend(name, old.target, old.engine, old.settings, log)
    new.starts, new.crashes = old.starts, old.crashes
    old.name, old.is_removed, old.replacement = f"{name}~{number}", True, None
    return new


def log_path(data_dir: Path, name: str) -> Path:
    """`logs/<upstream>-<model>.log`, whatever characters the names have."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".")
    return data_dir / "logs" / f"{safe or 'backend'}.log"
