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
LOOK_S = 5.0


class Gauge:
    """`host` is what the newest look saw; None before the first."""

    def __init__(self, machine: MachineProbe) -> None:
        """`machine` is the probe that `assessment` looks through."""
        self.machine = machine
        self.host: Host | None = None
        self._looked = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Look now, in a thread. A driver that does not answer costs `LOOK_S`, and one thread."""
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=LOOK_S)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            await asyncio.wait({self._looking}, timeout=LOOK_S)
        if not self._looking.done():
            log.warning("the machine's drivers have not answered for %g s", LOOK_S)
            return
        self._looking.result()

    async def _look(self) -> None:
        began = time.monotonic()
        self.host = await asyncio.to_thread(assessment.look, self.machine)
        self._looked = began

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
            await self.look()
            if self.host is not None and self.host.gpu_free.get(device, 0) >= wanted:
                return
            await asyncio.sleep(POLL_S)
        log.warning("%s: its memory on %s did not come back", backend.name, device)
