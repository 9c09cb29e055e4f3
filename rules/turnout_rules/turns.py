"""One decision per human turn: tool-loop requests and retries follow what their turn decided.

A bounded, least-recently-used memory with a time to live, for one table: a new table begins with an
empty one. It knows no clock: the caller passes the time. It keeps no refusal, and hands out nothing
that a rule of the table would see differently for the request at hand.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.capabilities import obstacle
from turnout_rules.decision import BLOCK, PASS, Decision
from turnout_rules.settings import Reading
from turnout_rules.sight import Sight, script_facts

if TYPE_CHECKING:
    from turnout_rules.request import Request
    from turnout_rules.table import Table


class _Kept(msgspec.Struct):
    decision: Decision
    used: float
    reads: tuple[str, ...]
    """What scripts looked at for the decision."""
    facts: str
    """A digest of what they saw there."""


class Turns:
    """Remembered decisions, by turn, or by conversation where the settings say so."""

    def __init__(self, table: Table, reading: Reading) -> None:
        """Start empty."""
        self._table = table
        self._reading = reading
        self._sight = Sight(table.rows, table.routes, by_conversation=reading.conversation)
        # By the key of the requests that share it, least recently used first. Guarded by the lock.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many decisions are remembered."""
        return len(self._kept)

    def key(self, request: Request) -> str:
        """What requests that may share a decision share; "": this one neither follows nor leads.

        It does not if it has no words, if it names its route or is bound to its origin. Holds a
        digest of the client's credentials, so it belongs into no log.
        """
        if self._table.is_named(request) or request.bound:
            return ""
        return self._sight.key(request)

    def recall(self, key: str, request: Request, now: float) -> Decision | None:
        """The decision that `request` follows; None: it must have one of its own.

        It must, too, if it has grown past what the remembered target serves, or into what a rule
        refuses. `now`: seconds, of the clock that `remember` gets.
        """
        kept = self._look_up(key, now)
        if kept is None or (kept.reads and script_facts(request, kept.reads) != kept.facts):
            return None
        decision = kept.decision
        if self._sight.must_look_again and self._table.decide(request).target == BLOCK:
            return None
        if decision.target != PASS and obstacle(request, self._table.resolve(decision.target)):
            return None
        return decision

    def remember(self, key: str, request: Request, decision: Decision, now: float) -> None:
        """Keep `decision` for what follows in the request's turn (or conversation)."""
        if decision.target == BLOCK or not key:
            return
        reads = tuple(sorted(request.script_reads))
        facts = script_facts(request, reads) if reads else ""
        followed = msgspec.structs.replace(decision, is_remembered=True)
        with self._lock:
            self._kept[key] = _Kept(followed, now, reads, facts)
            self._kept.move_to_end(key)
            while len(self._kept) > self._reading.max_turns:
                self._kept.popitem(last=False)

    def _look_up(self, key: str, now: float) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            if now - kept.used > self._reading.turn_ttl_s:
                del self._kept[key]
                return None
            kept.used = now
            self._kept.move_to_end(key)
            return kept
