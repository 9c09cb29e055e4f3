"""Human turns that have left their origin, and for which target: they do not go back and forth.

A bounded, least-recently-used memory with a time to live. It knows no clock: the caller passes it.
"""

from __future__ import annotations

from collections import OrderedDict

Key = tuple[str, ...]


class MovedTurns:
    """Targets that took turns over."""

    def __init__(self) -> None:
        """Start empty."""
        self._moved: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def target(self, key: Key, now: float, ttl_s: float) -> str | None:
        """Who took the turn over, no longer than `ttl_s` seconds ago; None: nobody."""
        target, used = self._moved.get(key, ("", 0.0))
        if not target or now - used > ttl_s:
            self._moved.pop(key, None)
            return None
        return target

    def took(self, key: Key, target: str, now: float, limit: int) -> None:
        """`target` has answered for the turn. At most `limit` turns are kept."""
        self._moved[key] = (target, now)
        self._moved.move_to_end(key)
        while len(self._moved) > limit:
            self._moved.popitem(last=False)
