"""One decision per human turn: tool-loop requests and retries follow what their turn decided.

A bounded, least-recently-used memory with a time to live. It knows no clock and no table: the
caller passes the time, and clears it when the table changes. Before following a remembered decision
the caller checks that the target can still serve the request, which may have grown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from turnout_rules.decision import Decision
from turnout_rules.settings import Reading

if TYPE_CHECKING:
    from turnout_rules.request import Request


class Turns:
    """Remembered decisions, by turn, or by conversation where the settings say so."""

    def __init__(self, reading: Reading) -> None:
        """Start empty."""
        self._reading = reading
        # Key to (decision, when last used), least recently used first. Guarded by the lock.
        self._decisions: OrderedDict[str, tuple[Decision, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many decisions are remembered."""
        return len(self._decisions)

    def recall(self, request: Request, now: float) -> Decision | None:
        """The decision of the request's turn, if there is one that is not too old."""
        key = self._key(request)
        if not key:
            return None
        with self._lock:
            entry = self._decisions.get(key)
            if entry is None:
                return None
            decision, used = entry
            if now - used > self._reading.turn_ttl_s:
                del self._decisions[key]
                return None
            self._decisions[key] = (decision, now)
            self._decisions.move_to_end(key)
            return decision

    def remember(self, request: Request, decision: Decision, now: float) -> None:
        """Keep `decision` for what follows in the request's turn (or conversation)."""
        key = self._key(request)
        if not key:
            return
        with self._lock:
            self._decisions[key] = (decision, now)
            self._decisions.move_to_end(key)
            while len(self._decisions) > self._reading.max_turns:
                self._decisions.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: the table has changed."""
        with self._lock:
            self._decisions.clear()

    def _key(self, request: Request) -> str:
        if not self._reading.conversation:
            return request.turn
        # Whole conversations, but an explicit wish, or another model asked for, is its own thread.
        route = request.headers.get("x-turnout-route", "")
        return f"{request.conversation}/{request.model}/{route}/{request.task}"
