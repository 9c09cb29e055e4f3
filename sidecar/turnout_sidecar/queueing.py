"""The waiting line of one backend: priorities, fairness between clients, bounded. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque

from turnout_sidecar.states import Ticket

BATCH_AGE_S = 30.0
"""A batch request that has waited so long gets one turn in"""
BATCH_SHARE = 8
"""so many turns of interactive ones: late, but never starved."""


class QueueFull(Exception):
    """The line is as long as it may be."""

    def __init__(self, waiting: int) -> None:
        """`waiting` requests stand in it."""
        super().__init__(f"{waiting} requests are waiting already")
        self.waiting = waiting


class Line:
    """Clients take turns; within one client, first come first served."""

    def __init__(self) -> None:
        """Empty."""
        self._interactive: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._batch: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._turns_since_batch = 0

    def __len__(self) -> int:
        """Tickets waiting."""
        return sum(len(queue) for side in self._sides() for queue in side.values())

    def tickets(self) -> list[Ticket]:
        """All of them, in no order."""
        return [t for side in self._sides() for queue in side.values() for t in queue]

    def join(self, ticket: Ticket, length: int) -> None:
        """Stand at the end; raises `QueueFull`. Batch never takes the last half of the line."""
        waiting = len(self)
        if waiting >= (max(1, length // 2) if ticket.is_batch and length > 0 else length):
            raise QueueFull(waiting)
        side = self._batch if ticket.is_batch else self._interactive
        side.setdefault(ticket.client, deque()).append(ticket)

    def leave(self, ticket: Ticket) -> bool:
        """Give up; False if it was not waiting any more."""
        side = self._batch if ticket.is_batch else self._interactive
        queue = side.get(ticket.client)
        if queue is None or ticket not in queue:
            return False
        queue.remove(ticket)
        if not queue:
            del side[ticket.client]
        return True

    def take(self, now: float) -> Ticket | None:
        """Whose turn it is; the ticket leaves the line."""
        side = self._side_to_serve(now)
        if not side:
            return None
        self._turns_since_batch = 0 if side is self._batch else self._turns_since_batch + 1
        client, queue = next(iter(side.items()))
        ticket = queue.popleft()
        side.move_to_end(client)
        if not queue:
            del side[client]
        return ticket

    def position(self, ticket: Ticket) -> int:
        """How many go before it, counted as the turns go now; -1 if it does not wait."""
        side = self._batch if ticket.is_batch else self._interactive
        queue = side.get(ticket.client)
        if queue is None or ticket not in queue:
            return -1
        rank = queue.index(ticket)
        ahead = sum(len(q) for q in self._interactive.values()) if ticket.is_batch else 0
        is_before = True
        for client, other in side.items():
            if client == ticket.client:
                is_before = False
                ahead += rank
            else:
                ahead += min(len(other), rank + (1 if is_before else 0))
        return ahead

    def oldest(self, *, is_batch: bool) -> float | None:
        """When the oldest waiting ticket of one priority arrived."""
        side = self._batch if is_batch else self._interactive
        return min((queue[0].arrived for queue in side.values()), default=None)

    def _side_to_serve(self, now: float) -> OrderedDict[str, deque[Ticket]]:
        if not self._interactive:
            return self._batch
        oldest = self.oldest(is_batch=True)
        is_overdue = oldest is not None and now - oldest > BATCH_AGE_S
        if is_overdue and self._turns_since_batch >= BATCH_SHARE:
            return self._batch
        return self._interactive

    def _sides(self) -> tuple[OrderedDict[str, deque[Ticket]], ...]:
        return (self._interactive, self._batch)
