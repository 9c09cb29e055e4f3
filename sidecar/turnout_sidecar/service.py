"""Everything the sidecar is made of, started and ended together.

Owns the background tasks: the rules watch, the classifier's preparation, the batch runner. Handlers
get at the rooms through it; it decides nothing itself.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from turnout_rules.decision_log import DecisionLog, decision_log_path
from turnout_rules.folders import data_folder, runtime_folder
from turnout_sidecar.backend_api import backend_rows
from turnout_sidecar.backends import Backends
from turnout_sidecar.batches.runner import BatchRunner
from turnout_sidecar.batches.store import BatchStore
from turnout_sidecar.classifier_keeper import ClassifierKeeper
from turnout_sidecar.deciding import Decider
from turnout_sidecar.dispatching import Dispatcher
from turnout_sidecar.forwarding import Forwarder
from turnout_sidecar.gateway import Gateway
from turnout_sidecar.intake import Intake
from turnout_sidecar.live_rules import LiveRules, Snapshot
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.metrics import Metrics

log = logging.getLogger(__name__)


class Service:
    """The rooms of one sidecar. Make it inside the event loop, then `start`, at last `close`."""

    def __init__(self, rules: Path) -> None:
        """Load the rules; raises `RulesError`. Nothing runs yet."""
        self.metrics = Metrics()
        self.live = LiveRules(rules, self.metrics)
        settings = self.live.current.settings
        sidecar = settings.sidecar
        self.data_dir = Path(sidecar.data_dir).expanduser() if sidecar.data_dir else data_folder()
        self._decisions = DecisionLog(decision_log_path(sidecar))
        self.decider = Decider(self.metrics, self._decisions)
        self.backends = Backends(
            settings,
            data_dir=self.data_dir,
            runtime_dir=runtime_folder(),
            machine=MachineProbe(),
        )
        self.forwarder = Forwarder(self.backends)
        self.dispatcher = Dispatcher(self.forwarder, self.metrics, sidecar.cooldown_s)
        self.intake = Intake(self.live, self.decider)
        self.gateway = Gateway(self.intake, self.dispatcher, self.metrics)
        self.batch_store = BatchStore(self.data_dir / "batches")
        self.batches = BatchRunner(
            self.batch_store, self.intake, self.dispatcher, self.live, self.metrics
        )
        self.classifier = ClassifierKeeper(self.live, self.decider)
        self.is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        """The clock that rests and turns are measured by."""
        return asyncio.get_running_loop().time()

    async def start(self) -> None:
        """Start the backends' keeper and the background tasks."""
        self.backends.use_table(self.live.current.table, self.live.current.settings)
        await self.backends.start()
        await self.batches.start()
        self.live.on_change(self._take_rules)
        self._own(self.live.watch(), "rules watch")
        self._own(self.classifier.keep(), "classifier")

    async def close(self) -> None:
        """End everything; nothing survives, whatever fails on the way."""
        self.is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for name, closing in (
            ("batches", self.batches.close()),
            ("backends", self.backends.close()),
            ("upstream connections", self.forwarder.close()),
        ):
            try:
                await closing
            except Exception:
                log.exception("closing %s failed", name)
        await self.classifier.close()
        await asyncio.to_thread(self._decisions.close)

    def render_metrics(self) -> bytes:
        """The exposition, with the states of this moment."""
        metrics = self.metrics
        metrics.resting.clear()
        for name, left_s in self.dispatcher.rests(self.now()).items():
            metrics.resting.labels(name).set(left_s)
        metrics.show_backends(backend_rows(self.backends))
        return metrics.render()

    def batches_state(self) -> dict[str, Any]:
        """What the batch runner is doing, for `/healthz`."""
        return {"running": self.batches.running}

    def _take_rules(self, snapshot: Snapshot) -> None:
        self._decisions.write_to(decision_log_path(snapshot.settings.sidecar))
        self.backends.use_table(snapshot.table, snapshot.settings)
        self.dispatcher.resting.cooldown_s = snapshot.settings.sidecar.cooldown_s
        self.classifier.take(snapshot)

    def _own(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
