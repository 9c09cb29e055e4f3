"""Which targets rest because they keep failing, and when one request may probe them again.

A pure state machine per target: healthy, resting, half-open (one probe out). The clock is passed,
nothing is sent. It never refuses by itself: it says how long a target should be left alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FAILURES_UNTIL_REST = 3
MAX_COOLDOWN_FACTOR = 8
MAX_ASKED_REST_S = 300.0
MAX_TARGETS = 1_000


@dataclass(slots=True)
class _Record:
    """One target that failed of late. Healthy targets have no record."""

    failures: int = 0
    rests: int = 0
    """Rests in a row, each longer than the one before."""
    rest_until: float = 0.0
    is_asked: bool = False
    """The target itself asked for the pause (`Retry-After`)."""
    is_probing: bool = False


class Resting:
    """All targets' rests. Bounded: of more than `MAX_TARGETS` failing ones the oldest is let go."""

    def __init__(self, cooldown_s: float, failures: int = FAILURES_UNTIL_REST) -> None:
        """A target rests `cooldown_s` after `failures` in a row, doubling up to eightfold."""
        self.cooldown_s = cooldown_s
        self._failures = failures
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def rest_left_s(self, target: str, now: float) -> float:
        """Seconds until `target` may be tried; 0 when it may be tried now."""
        record = self._records.get(target)
        return max(0.0, record.rest_until - now) if record else 0.0

    def is_asked(self, target: str) -> bool:
        """Whether the target's own `Retry-After` is why it rests."""
        record = self._records.get(target)
        return record is not None and record.is_asked

    def admit(self, target: str, now: float) -> bool:
        """Whether a request may go to `target` now; after a rest only one at a time may (probe)."""
        record = self._records.get(target)
        if record is None or record.rest_until == 0.0:
            return True
        if now < record.rest_until or record.is_probing:
            return False
        record.is_probing = True
        return True

    def succeeded(self, target: str) -> None:
        """`target` answered: it is healthy."""
        self._records.pop(target, None)

    def abandoned(self, target: str) -> None:
        """The request ended without saying anything about `target` (client left, body refused)."""
        if record := self._records.get(target):
            record.is_probing = False

    def failed(
        self,
        target: str,
        now: float,
        *,
        retry_after_s: float | None = None,
        cooldown_s: float | None = None,
    ) -> None:
        """`target` failed; it rests at once if it asked for that or if this was its probe."""
        record = self._records.setdefault(target, _Record())
        self._records.move_to_end(target)
        was_probe, record.is_probing = record.is_probing, False
        record.failures += 1
        if retry_after_s is not None:
            record.is_asked = True
            record.rest_until = now + min(retry_after_s, MAX_ASKED_REST_S)
        elif was_probe or record.failures >= self._failures:
            factor = min(2**record.rests, MAX_COOLDOWN_FACTOR)
            base = self.cooldown_s if cooldown_s is None else cooldown_s
            record.is_asked = False
            record.rests += 1
            record.failures = 0
            record.rest_until = now + base * factor
        while len(self._records) > MAX_TARGETS:
            self._records.popitem(last=False)

    def resting(self, now: float) -> dict[str, float]:
        """Every target that rests now, with the seconds left."""
        return {
            name: record.rest_until - now
            for name, record in self._records.items()
            if record.rest_until > now
        }
