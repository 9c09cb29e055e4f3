"""Graphics cards that are not there: the functions of `pynvml` that we call, over made-up cards.

Behaves as NVML does: handles by index, memory that processes hold, `NVMLError` where a query is not
supported, a `usedGpuMemory` of None where the driver does not tell, and memory that comes back some
time after its process has gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest


@dataclass
class Card:
    """One card. `holders` tells bytes by process id, asked anew at every look."""

    total_bytes: int
    name: str = "NVIDIA GeForce RTX 3060"
    drives_display: bool | None = False
    reserved_bytes: int = 0
    """Held by nobody in particular, as by a driver."""
    holders: Callable[[], dict[int, int]] = dict
    hides_memory: bool = False
    """As in a container: processes are listed, what they hold is not."""
    lag_s: float = 0.0
    """How long memory stays taken after its process has gone."""
    _last: dict[int, tuple[int, float]] = field(default_factory=dict)

    def held(self) -> dict[int, int]:
        """Bytes by process, those of the recently dead included."""
        now = time.monotonic()
        self._last |= {pid: (size, now) for pid, size in self.holders().items()}
        self._last = {p: (s, at) for p, (s, at) in self._last.items() if now - at <= self.lag_s}
        return {pid: size for pid, (size, _) in self._last.items()}


class FakeNvml:
    """Put in the place of `pynvml`'s functions by `install`."""

    def __init__(self, *cards: Card) -> None:
        """No card at all: NVML is there and counts none."""
        self.cards = cards
        self.starts = 0
        self.error: int | None = None
        """An NVML error code that every call raises from now on."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
        """Replace the functions for the length of a test."""
        for name in dir(self):
            if name.startswith("nvml"):
                monkeypatch.setattr(pynvml, name, getattr(self, name))
        return self

    def nvmlInit(self) -> None:
        self._check()
        self.starts += 1

    def nvmlDeviceGetCount(self) -> int:
        self._check()
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        self._check()
        return self.cards[index]

    def nvmlDeviceGetName(self, card: Card) -> str:
        return card.name

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        self._check()
        used = card.reserved_bytes + sum(card.held().values())
        free = max(0, card.total_bytes - used)
        return SimpleNamespace(total=card.total_bytes, free=free, used=card.total_bytes - free)

    def nvmlDeviceGetDisplayActive(self, card: Card) -> int:
        if card.drives_display is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(card.drives_display)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if card.hides_memory else size)
            for pid, size in card.held().items()
        ]

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: Card) -> list[Any]:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _check(self) -> None:
        if self.error is not None:
            raise pynvml.NVMLError(self.error)
