"""The words between the pure schedule and those who carry it out: states, tickets, moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """Where a backend is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """Serves what it has, takes nothing new, then stops or sleeps."""
    SLEEPING = "sleeping"
    STOPPING = "stopping"
    FAILED = "failed"
    """Will not be tried again before its back-off has passed."""


HOLDS_MEMORY = frozenset({State.STARTING, State.READY, State.DRAINING, State.STOPPING})


@dataclass(slots=True, eq=False, kw_only=True)
class Ticket:
    """One request that wants room at a backend."""

    backend: str
    client: str = ""
    is_batch: bool = False
    arrived: float
    timeout_s: float
    """How long it waits for room while the backend is ready."""
    limit_s: float = 600.0
    """How long it waits at most, starts and swaps included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the schedule needs to know about one backend at one moment."""

    name: str
    state: State
    seats: int
    queue_length: int = 32
    need_bytes: int = 0
    device: str = "cpu"
    is_pinned: bool = False
    is_wanted: bool = False
    """Preload, or a person asked for it: started without a request."""
    is_remote: bool = False
    """Someone else's: its requests use no memory of this machine."""
    is_unwanted: bool = False
    """A person stopped it, or its settings changed: drained, then stopped."""
    can_sleep: bool = False
    last_used: float = 0.0
    """When its last request ended (or it became ready)."""
    ready_since: float = 0.0
    start_cost_s: float = 0.0
    """How long its last start took."""
    ttl_s: float = 0.0
    """0: stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What is to be done now, all of it at once."""

    grant: tuple[Ticket, ...] = ()
    late: tuple[Ticket, ...] = ()
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    sleep: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    """Drained for somebody who has left."""
    misfit: tuple[str, ...] = ()
    """Wanted backends that would not fit even on an empty machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Free bytes per device, and why nothing new may begin (empty: it may)."""

    free: dict[str, int] = field(default_factory=dict)
    guard: str = ""
    over: dict[str, int] = field(default_factory=dict)
    """By how many bytes engines hold more than a device's budget allows together."""
    lowered: frozenset[str] = frozenset()
    """Devices whose budget somebody lowered below what runs: there even the last engine goes."""
