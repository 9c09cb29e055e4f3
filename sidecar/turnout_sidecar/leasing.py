"""What the gateway needs of whoever grants room at a target: a lease, or a refusal.

The keeper of engines (`backends`) implements it; tests may bring a smaller one. No behaviour here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from turnout_rules.model import Target


class Leased(Protocol):
    """Room at a target for one request."""

    @property
    def base_url(self) -> str:
        """Where the target answers; may be empty for upstreams that someone else runs."""

    @property
    def model(self) -> str:
        """The model name to send; may be empty: the target's own."""

    @property
    def on_piece(self) -> Callable[[], None]:
        """To be called with each piece of the answer."""


class Lessor(Protocol):
    """Grants leases; raises `backends.Refused` when there is no room in time."""

    def lease(
        self,
        target: Target,
        *,
        priority: str = "interactive",
        client: str = "",
        timeout_s: float,
        on_wait: Callable[[Any], None] | None = None,
    ) -> AbstractAsyncContextManager[Leased]:
        """Wait for room at `target`, for managed ones until its engine runs."""
