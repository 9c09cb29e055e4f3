"""The last look at the machine, and whose turn it is to look again. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
import time

from turnout_sidecar import assessment
from turnout_sidecar.backend import Backend
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.memory import Host

log = logging.getLogger(__name__)
POLL_S = 0.25
BACK_S = 5.0
BACK_SHARE = 0.75
STALE_S = 1.0


class Gauge:
    """`host` is what the newest look saw; None before the first."""

    def __init__(self, machine: MachineProbe) -> None:
        """`machine` is the probe that `assessment` looks through."""
        self.machine = machine
        self.host: Host | None = None
        self._looked = 0.0

    async def look(self) -> Host:
        """Look now, in a thread."""
        began = time.monotonic()
        host = await asyncio.to_thread(assessment.look, self.machine)
        if began >= self._looked:  # another look may have begun later and ended sooner
            self.host, self._looked = host, began
        return host

    def is_stale(self, now: float) -> bool:
        """Whether the newest look is older than `STALE_S`."""
        return now - self._looked > STALE_S

    async def memory_back(self, backend: Backend, before: Host | None = None) -> None:
        """Drivers free memory some time after the process has gone; the next start needs it.

        `before`: how it was while the engine ran. Gives up after `BACK_S`, with a word in the log.
        """
        device, held = backend.device, backend.need_bytes or 0
        if device == "cpu" or before is None or not held:
            await self.look()
            return
        wanted = before.gpu_free.get(device, 0) + held * BACK_SHARE
        until = time.monotonic() + BACK_S
        while time.monotonic() < until:
            host = await self.look()
            if host.gpu_free.get(device, 0) >= wanted:
                return
            await asyncio.sleep(POLL_S)
        log.warning("%s: its memory on %s did not come back", backend.name, device)
