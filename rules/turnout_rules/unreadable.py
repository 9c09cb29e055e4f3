"""The one exception of body reading: a request that is not understood, and in plain words why.

Whoever catches it lets the request pass untouched; the reason goes into the decision. It never
holds text of the request.
"""

from __future__ import annotations


class Unreadable(Exception):
    """The body cannot be read (or must not be trusted); the request passes as it is."""

    def __init__(self, reason: str) -> None:
        """Keep `reason`, words such as "duplicate key in the body"."""
        super().__init__(reason)
        self.reason = reason


class TooLarge(Unreadable):
    """The body is larger than a limit, as it was sent or once decoded."""

    def __init__(self, limit_bytes: int) -> None:
        """Name the limit."""
        super().__init__(f"body is larger than {limit_bytes} bytes")
