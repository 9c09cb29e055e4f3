"""Who runs next, which engine starts, which one makes room. Pure: no I/O, the clock is passed.

One machine, many models, too little memory for all. Requests for a running model are served
together (ABCABC becomes AABBCC); a model keeps its memory for at least one turn once it is loaded,
and loses it to the longest waiting other when the turn is over, so that none starves. It never
stops an engine that serves, nor a pinned one: a busy engine is drained first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnout_sidecar.queueing import Line
from turnout_sidecar.states import HOLDS_MEMORY, Memory, Moves, Standing, State, Ticket

TURN_S = 2.0
"""A loaded model serves at least so long before others may make it drain,"""
MAX_TURN_S = 60.0
"""or as long as its start took, up to this."""
IDLE_GAP_S = 0.25
"""An idle model is left alone so long, for its next request may be on its way."""
BATCH_TURN_S = 30.0
"""Batch work alone makes a serving model drain only after so long."""


@dataclass(slots=True)
class _Draft:
    """The moves of one `advance` while they are being made."""

    standings: Mapping[str, Standing]
    free: dict[str, int]
    grant: list[Ticket] = field(default_factory=list)
    late: list[Ticket] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    sleep: list[str] = field(default_factory=list)
    drain: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)
    misfit: list[str] = field(default_factory=list)
    coming: dict[str, int] = field(default_factory=dict)
    """Bytes per device that stops and drains under way will free."""
    leaving: set[str] = field(default_factory=set)
    """Backends that these moves stop or drain."""

    def finish(self) -> Moves:
        """The moves as a value."""
        return Moves(
            grant=tuple(self.grant),
            late=tuple(self.late),
            start=tuple(self.start),
            stop=tuple(self.stop),
            sleep=tuple(self.sleep),
            drain=tuple(self.drain),
            resume=tuple(self.resume),
            misfit=tuple(self.misfit),
        )


class Schedule:
    """The lines, what runs, and who drains for whom. Only `join`, `leave`, … change it."""

    def __init__(self, turn_s: float = TURN_S) -> None:
        """`turn_s`: the shortest turn of a loaded model that others wait for."""
        self._turn_s = turn_s
        self._lines: dict[str, Line] = {}
        self._running: dict[str, set[Ticket]] = {}
        self._drained_for: dict[str, str] = {}

    def join(self, ticket: Ticket, standing: Standing) -> None:
        """Stand in line; raises `QueueFull`. Free seats of a ready engine lengthen the line."""
        seats = standing.seats - self.running(standing.name)
        room = max(0, seats) if standing.state is State.READY else standing.seats
        line = self._lines.setdefault(ticket.backend, Line())
        line.join(ticket, standing.queue_length + room)

    def leave(self, ticket: Ticket) -> bool:
        """A waiter gave up; False if it was not waiting (any more)."""
        line = self._lines.get(ticket.backend)
        return line is not None and line.leave(ticket)

    def release(self, ticket: Ticket) -> None:
        """A granted request has ended."""
        self._running[ticket.backend].remove(ticket)

    def retire(self, backend: str, name: str) -> None:
        """What `backend` runs counts under another name from now on; its line stays."""
        self._running[name] = self._running.pop(backend, set())
        for ticket in self._running[name]:
            ticket.backend = name
        if claimant := self._drained_for.pop(backend, ""):
            self._drained_for[name] = claimant

    def drop(self, backend: str) -> list[Ticket]:
        """Empty a line; its tickets, for whoever refuses them."""
        line = self._lines.pop(backend, None)
        return line.tickets() if line else []

    def running(self, backend: str) -> int:
        """Granted and not released."""
        return len(self._running.get(backend, ()))

    def waiting(self, backend: str) -> int:
        """In line."""
        line = self._lines.get(backend)
        return len(line) if line else 0

    def position(self, ticket: Ticket) -> int:
        """How many go before it; -1 if it does not wait."""
        line = self._lines.get(ticket.backend)
        return line.position(ticket) if line else -1

    def drains_for(self, backend: str) -> str:
        """The backend that `backend` makes room for; empty if for none."""
        return self._drained_for.get(backend, "")

    def waiting_tickets(self, backend: str) -> list[Ticket]:
        """Those in line, in no order."""
        line = self._lines.get(backend)
        return line.tickets() if line else []

    def advance(self, standings: Mapping[str, Standing], memory: Memory, now: float) -> Moves:
        """Everything that is to be done now. The caller must carry all of it out."""
        draft = _Draft(standings=standings, free=dict(memory.free))
        self._expire(draft, now)
        self._settle_drains(draft)
        self._let_go(draft, now, is_guarded=bool(memory.guard))
        self._shed(draft, memory)
        for standing in standings.values():
            if self._is_going(standing, draft):
                device = standing.device
                draft.coming[device] = draft.coming.get(device, 0) + standing.need_bytes
        if not memory.guard:
            self._start_wanted(draft, now)
        self._grant(draft, now, is_guarded=bool(memory.guard))
        return draft.finish()

    def _expire(self, draft: _Draft, now: float) -> None:
        for name, line in self._lines.items():
            standing = draft.standings.get(name)
            for ticket in line.tickets():
                if now >= deadline(ticket, standing):
                    line.leave(ticket)
                    draft.late.append(ticket)

    def _settle_drains(self, draft: _Draft) -> None:
        """A drained backend stops when its last request ends, or resumes if nobody waits more."""
        for name, standing in draft.standings.items():
            if standing.state is not State.DRAINING:
                self._drained_for.pop(name, None)
                continue
            claimant = self._drained_for.get(name, "")
            if claimant and not self._wants(claimant, draft) and not standing.is_unwanted:
                del self._drained_for[name]
                draft.resume.append(name)
            elif self.running(name) == 0:
                self._release_memory(standing, draft)

    def _let_go(self, draft: _Draft, now: float, *, is_guarded: bool) -> None:
        """Unwanted ones, those whose TTL has passed, and one idle one if memory is short."""
        idle = []
        for name, standing in draft.standings.items():
            if standing.is_unwanted and standing.state in (State.READY, State.SLEEPING):
                if self.running(name):
                    self._start_drain(name, "", draft)
                else:
                    draft.stop.append(name)
                    draft.leaving.add(name)
            elif self._is_idle(name, draft):
                idle.append(standing)
                has_expired = standing.ttl_s > 0 and now - standing.last_used >= standing.ttl_s
                if has_expired and not standing.is_pinned:
                    self._release_memory(standing, draft)
        is_stopping = any(s.state is State.STOPPING for s in draft.standings.values())
        if is_guarded and not is_stopping and not draft.leaving:
            victims = [s for s in idle if not s.is_pinned and s.need_bytes]
            if victims:
                draft.stop.append(min(victims, key=lambda s: s.last_used).name)
                draft.leaving.add(draft.stop[-1])

    def _shed(self, draft: _Draft, memory: Memory) -> None:
        """Where engines hold more than the budget, the idle go first, then the busy are drained.

        One alone stays, whatever it was seen to hold, unless somebody lowered the budget.
        """
        for device, excess in memory.over.items():
            here = [s for s in draft.standings.values() if s.device == device and s.need_bytes]
            going = [s for s in here if self._is_going(s, draft)]
            missing = excess - sum(s.need_bytes for s in going)
            ready = [s for s in here if s.state is State.READY and s not in going]
            victims = [s for s in ready if not s.is_pinned]
            victims.sort(key=lambda s: (self.running(s.name) > 0, s.last_used))
            kept = 0 if device in memory.lowered or len(ready) > len(victims) else 1
            for victim in victims[: len(victims) - kept]:
                if missing <= 0:
                    break
                missing -= victim.need_bytes
                self._part_with(victim, "", draft)

    def _grant(self, draft: _Draft, now: float, *, is_guarded: bool) -> None:
        for name, line in self._lines.items():
            standing = draft.standings.get(name)
            if standing is None or standing.state is not State.READY or name in draft.leaving:
                continue
            if is_guarded and not standing.is_remote:
                continue
            while self.running(name) < standing.seats and (ticket := line.take(now)):
                self._running.setdefault(name, set()).add(ticket)
                draft.grant.append(ticket)

    def _start_wanted(self, draft: _Draft, now: float) -> None:
        """The longest waiting first. One that cannot start yet holds back later ones that would
        take what it waits for."""
        claimed: set[str] = set()
        for standing in self._wanted(draft):
            if standing.device in claimed:
                continue
            free = draft.free.get(standing.device, 0)
            if standing.need_bytes <= free or standing.need_bytes == 0:
                draft.start.append(standing.name)
                draft.free[standing.device] = free - standing.need_bytes
            elif not self._make_room(standing, free, draft, now):
                claimed.add(standing.device)

    def _make_room(self, wanted: Standing, free: int, draft: _Draft, now: float) -> bool:
        """Stop or drain others for `wanted`; True if it is hopeless and holds nobody back."""
        missing = wanted.need_bytes - free - draft.coming.get(wanted.device, 0)
        if missing <= 0:
            return False  # room is on its way
        others = [
            s
            for s in draft.standings.values()
            if s.device == wanted.device
            and s.name != wanted.name
            and not s.is_pinned
            and s.need_bytes
            and s.name not in draft.leaving
        ]
        ready = [s for s in others if s.state is State.READY]
        idle = [s for s in ready if self._is_idle(s.name, draft)]
        victims = choose_victims(missing, [s for s in idle if _has_rested(s, now)])
        if victims is None:
            over = [s for s in ready if self._is_turn_over(s, wanted, draft, now)]
            victims = choose_victims(missing, over)
        for victim in victims or ():
            self._part_with(victim, wanted.name, draft)
            device = wanted.device
            draft.coming[device] = draft.coming.get(device, 0) + victim.need_bytes
        if victims is not None:
            return False
        movable = sum(
            s.need_bytes for s in others if s.state in HOLDS_MEMORY or s.name in draft.start
        )
        # How much of its memory a starting engine has taken already is not known: `free` errs low.
        is_settled = not any(
            s.state is State.STARTING and s.device == wanted.device
            for s in draft.standings.values()
        )
        if movable < missing and is_settled:
            draft.misfit.append(wanted.name)
            return True
        return False

    def _wanted(self, draft: _Draft) -> list[Standing]:
        """Backends that somebody waits for and that do not run, in the order of their claims."""
        startable = (State.STOPPED, State.SLEEPING)
        wanted = [
            s
            for s in draft.standings.values()
            if s.state in startable and s.name not in draft.leaving and self._wants(s.name, draft)
        ]
        return sorted(wanted, key=lambda s: self._claim(s.name))

    def _claim(self, name: str) -> tuple[int, float]:
        """Interactive before batch before preload, then by the oldest waiter."""
        line = self._lines.get(name)
        if line and (oldest := line.oldest(is_batch=False)) is not None:
            return 0, oldest
        if line and (oldest := line.oldest(is_batch=True)) is not None:
            return 1, oldest
        return 2, 0.0

    def _wants(self, name: str, draft: _Draft) -> bool:
        standing = draft.standings.get(name)
        return standing is not None and (self.waiting(name) > 0 or standing.is_wanted)

    def _is_turn_over(self, victim: Standing, wanted: Standing, draft: _Draft, now: float) -> bool:
        if self._is_idle(victim.name, draft):
            return _has_rested(victim, now)
        kind, oldest = self._claim(wanted.name)
        if kind == 2:
            return False
        turn_s = min(max(self._turn_s, victim.start_cost_s), MAX_TURN_S)
        if kind == 1:
            turn_s = max(turn_s, BATCH_TURN_S)
        return now - max(oldest, victim.ready_since) >= turn_s

    def _is_idle(self, name: str, draft: _Draft) -> bool:
        is_ready = draft.standings[name].state is State.READY
        is_free = name not in draft.leaving and not self.running(name)
        return is_ready and is_free and not self.waiting(name)

    def _is_leaving(self, name: str, draft: _Draft) -> bool:
        is_draining = draft.standings[name].state is State.DRAINING
        return (is_draining and name not in draft.resume) or name in draft.leaving

    def _is_going(self, standing: Standing, draft: _Draft) -> bool:
        return standing.state is State.STOPPING or self._is_leaving(standing.name, draft)

    def _part_with(self, victim: Standing, claimant: str, draft: _Draft) -> None:
        if self.running(victim.name):
            self._start_drain(victim.name, claimant, draft)
        else:
            self._release_memory(victim, draft)

    def _start_drain(self, name: str, claimant: str, draft: _Draft) -> None:
        draft.drain.append(name)
        draft.leaving.add(name)
        if claimant:
            self._drained_for[name] = claimant

    def _release_memory(self, standing: Standing, draft: _Draft) -> None:
        is_sleep = standing.can_sleep and not standing.is_unwanted
        (draft.sleep if is_sleep else draft.stop).append(standing.name)
        draft.leaving.add(standing.name)


def _has_rested(standing: Standing, now: float) -> bool:
    """Idle for more than the gap between two requests of one client, so that a start is not wasted.

    Short beside the start itself: a quick engine is cheap to start again.
    """
    return now - standing.last_used >= min(IDLE_GAP_S, standing.start_cost_s / 2)


def deadline(ticket: Ticket, standing: Standing | None) -> float:
    """Until when `ticket` waits: the short time counts only while its engine is ready."""
    limit = ticket.arrived + max(ticket.limit_s, ticket.timeout_s)
    if standing is None or standing.state is not State.READY:
        return limit
    return min(limit, max(ticket.arrived, standing.ready_since) + ticket.timeout_s)


def choose_victims(missing: int, candidates: Sequence[Standing]) -> tuple[Standing, ...] | None:
    """The least recently used that together free `missing` bytes, none in vain; None: too few."""
    chosen: list[Standing] = []
    freed = 0
    for standing in sorted(candidates, key=lambda s: s.last_used):
        if freed >= missing:
            break
        chosen.append(standing)
        freed += standing.need_bytes
    if freed < missing:
        return None
    for standing in tuple(chosen):
        if freed - standing.need_bytes >= missing:
            chosen.remove(standing)
            freed -= standing.need_bytes
    return tuple(chosen)
