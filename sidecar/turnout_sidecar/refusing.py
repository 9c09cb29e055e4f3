"""How the keeper of engines says no, and what it tells those who wait. Values only."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from turnout_sidecar.states import State


class Refused(Exception):
    """No room in time, or none at all; carries what an HTTP answer needs."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        retry_after_s: float | None = None,
        queue_position: int | None = None,
    ) -> None:
        """`code` is a stable snake_case name; `queue_position` counts those ahead."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.queue_position = queue_position


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiter is told whenever it changes."""

    backend: str
    state: str
    position: int
    """Requests ahead of this one."""
    message: str


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Room at a target for one request."""

    base_url: str
    model: str
    target: str
    on_piece: Callable[[], None] = lambda: None
    """To be called with each piece of the answer: a sign of life."""


def describe(backend: str, state: State, position: int, guard: str, room_for: str) -> Waiting:
    """The words for a waiter at `backend`."""
    if guard:
        message = f"waiting: {guard}"
    elif state is State.STARTING:
        message = f"{backend} is loading"
    elif state is State.READY:
        message = f"waiting for room at {backend}, {position} ahead"
    elif state in (State.DRAINING, State.STOPPING):
        other = f" for {room_for}" if room_for else ""
        message = f"{backend} makes room{other} and will be loaded again"
    else:
        message = f"{backend} waits for memory that other models hold"
    return Waiting(backend=backend, state=str(state), position=position, message=message)


def queue_full(backend: str, waiting: int, seats: int) -> Refused:
    """The line is at its limit."""
    return Refused(
        429,
        "queue_full",
        f"{backend} is busy: {seats} requests run and {waiting} wait already",
        retry_after_s=1.0,
        queue_position=waiting,
    )


def removed(backend: str) -> Refused:
    """The rules name it no more; asked again, a request is decided by the new ones."""
    return Refused(503, "backend_removed", f"{backend} was taken out of the rules", 1.0)


def misfit(need_bytes: int, device: str, free_bytes: int) -> str:
    """What to say after the name of a backend for which no room can be made."""
    need, free = need_bytes / 2**30, max(0, free_bytes) / 2**30
    return f"needs {need:.1f} GiB on {device}, {free:.1f} GiB is free and no idle model is left"


def late(backend: str, state: State, seconds: float, position: int, guard: str) -> Refused:
    """The wait was longer than allowed."""
    if guard:
        return Refused(503, "memory_pressure", f"{backend}: {guard}", 5.0, position)
    what = "for room at" if state is State.READY else f"while it was {state}, for"
    return Refused(504, "queue_timeout", f"waited {seconds:.1f} s {what} {backend}", 1.0, position)
