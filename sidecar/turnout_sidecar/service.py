"""Everything the sidecar is made of, started and ended together.

Owns the background tasks: the rules watch, the classifier's preparation, the batch runner. Handlers
get at the rooms through it; it decides nothing itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout_rules.decision_log import DecisionLog, decision_log_path
from turnout_rules.folders import data_folder, runtime_folder
from turnout_sidecar.backend_api import backend_rows
from turnout_sidecar.backends import Backends
from turnout_sidecar.batches.runner import BatchRunner
from turnout_sidecar.batches.store import BatchStore
from turnout_sidecar.deciding import Decider
from turnout_sidecar.dispatching import Dispatcher
from turnout_sidecar.forwarding import Forwarder
from turnout_sidecar.gateway import Gateway
from turnout_sidecar.intake import Intake
from turnout_sidecar.live_rules import LiveRules, Snapshot
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.metrics import Metrics

if TYPE_CHECKING:
    from turnout_rules.settings import Settings
    from turnout_sidecar.classifiers.base import Classifier

log = logging.getLogger(__name__)
CLASSIFIER_RETRY_S = 60.0
"""A classifier that cannot work may be able to later: models are fetched, disks emptied."""


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
        self.classifier_settled = asyncio.Event()
        """Set once the classifier is ready, off or known not to work."""
        self.is_closing = False
        self.socket = ""
        """The Unix socket that it is served on, once there is one."""
        self._classifier: Classifier | None = None
        # Set by a reload, awaited by the classifier's task, so that quick edits train once.
        self._has_new_table = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        """The clock that rests and turns are measured by."""
        return asyncio.get_running_loop().time()

    async def start(self) -> None:
        """Start the backends' keeper and the background tasks."""
        self.backends.use_table(self.live.current.table)
        await self.backends.start()
        await self.batches.start()
        self.live.on_change(self._take_rules)
        self._own(self.live.watch(), "rules watch")
        self._own(self._keep_classifier(), "classifier")

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
        if self._classifier is not None:
            with contextlib.suppress(Exception):
                await self._classifier.close()
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
        self._has_new_table.set()

    def _own(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_classifier(self) -> None:
        """Build the classifier, then train it for each new table; the old head serves meanwhile."""
        settings = self.live.current.settings
        if settings.classifier.kind == "off":
            self.decider.classifier_problem = "switched off in the settings"
            self.classifier_settled.set()
            return
        self.decider.classifier_problem = "starting"
        while True:
            self._has_new_table.clear()
            problem = await self._teach_classifier(settings)
            if problem and problem != self.decider.classifier_problem:
                state = "off" if self.decider.classifier is None else "still taught by older rules"
                log.warning("the classifier is %s: %s", state, problem)
            self.decider.classifier_problem = problem
            self.classifier_settled.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLASSIFIER_RETRY_S if problem else None):
                    await self._has_new_table.wait()

    async def _teach_classifier(self, settings: Settings) -> str:
        """Make the classifier if there is none, and train it; why it failed, else nothing."""
        try:
            from turnout_sidecar.classifiers import build_classifier

            if self._classifier is None:
                self._classifier = await asyncio.to_thread(
                    build_classifier, settings, socket=self.socket
                )
            await self._classifier.prepare(self.live.current.table)
        except Exception as error:
            return str(error) or type(error).__name__
        self.decider.classifier = self._classifier
        return ""
