"""The whole decision, both layers, for `/route` and the gateway alike.

Runs the table, asks the classifier where the table wants it, under a deadline, and lets the table
weigh the verdict. It never raises for a classifier's sake: without a verdict the default decides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.capabilities import obstacle
from turnout_rules.decision import BLOCK, PASS, Decision, Verdict
from turnout_rules.decision_log import DecisionLog, Source
from turnout_rules.request import Request
from turnout_sidecar.live_rules import LiveRules, Snapshot
from turnout_sidecar.metrics import Metrics

if TYPE_CHECKING:
    from turnout_sidecar.classifiers.base import Classifier

log = logging.getLogger(__name__)
AUTO_MODEL = "turnout/auto"


class Decider:
    """Decides requests. `classifier` is None when there is none, `classifier_problem` says why."""

    def __init__(self, live: LiveRules, metrics: Metrics, decisions: DecisionLog) -> None:
        """No classifier yet: `classifier` is set when one is ready."""
        self._live = live
        self._metrics = metrics
        self._log = decisions
        self.classifier: Classifier | None = None
        self.classifier_problem = "off"
        self._complained = False

    async def decide(
        self, request: Request, snapshot: Snapshot, *, source: Source, is_sticky: bool = False
    ) -> Decision:
        """The decision under `snapshot`; a sticky one follows an earlier decision of its turn."""
        started = time.perf_counter_ns()
        now = asyncio.get_running_loop().time()
        if is_sticky and (kept := self._remembered(request, snapshot, now)) is not None:
            return self._finished(kept, started, source)
        decision = snapshot.table.decide(request)
        if decision.wants_classifier:
            verdict = await self._verdict(request, snapshot)
            decision = snapshot.table.settle(request, decision, verdict)
        if is_sticky and snapshot is self._live.current:
            self._live.turns.remember(request, decision, now)
        decision = self._finished(decision, started, source)
        self._log.record(request.text, decision, version=snapshot.table.version, source=source)
        return decision

    async def classify(self, text: str, attachments: Sequence[str], snapshot: Snapshot) -> Verdict:
        """What the classifier says, or a verdict without a route that says why there is none."""
        if self.classifier is None:
            self._metrics.classifications.labels("off").inc()
            return Verdict(route=None, reason=f"classifier off: {self.classifier_problem}")
        timeout_ms = snapshot.settings.classifier.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                verdict = await self.classifier.classify(text, attachments)
        except TimeoutError:
            self._metrics.classifications.labels("late").inc()
            return Verdict(route=None, reason=f"classifier late (over {timeout_ms} ms)")
        except Exception as error:
            self._metrics.classifications.labels("failed").inc()
            if not self._complained:
                log.exception("the classifier failed; further failures are only counted")
            self._complained = True
            return Verdict(route=None, reason=f"classifier failed ({type(error).__name__})")
        self._metrics.classifications.labels("accepted" if verdict.is_accepted else "unsure").inc()
        return verdict

    async def _verdict(self, request: Request, snapshot: Snapshot) -> Verdict | None:
        """None when nobody was asked; a verdict of a newer table is no use to an older one."""
        if snapshot.settings.classifier.kind == "off" or not request.text.strip():
            return None
        if not snapshot.table.semantic_routes:
            return None
        verdict = await self.classify(request.text, request.attachments, snapshot)
        if verdict.route is not None and snapshot.table.route(verdict.route) is None:
            return Verdict(route=None, reason="the rules changed while the classifier was asked")
        return verdict

    def _remembered(self, request: Request, snapshot: Snapshot, now: float) -> Decision | None:
        """The decision of the same turn, unless the client names a route or it cannot serve."""
        names_its_route = (
            (request.model.startswith("turnout/") and request.model != AUTO_MODEL)
            or "x-turnout-route" in request.headers
            or bool(request.bound)
        )
        if names_its_route or snapshot is not self._live.current:
            return None
        decision = self._live.turns.recall(request, now)
        if decision is None or decision.target in (PASS, BLOCK):
            return decision
        target = snapshot.table.resolve(decision.target)
        return None if obstacle(request, target) else decision

    def _finished(self, decision: Decision, started: int, source: str) -> Decision:
        elapsed_us = (time.perf_counter_ns() - started) / 1000
        self._metrics.decisions.labels(decision.route or "", decision.layer, source).inc()
        self._metrics.decision_seconds.labels(decision.layer).observe(elapsed_us / 1e6)
        return msgspec.structs.replace(decision, elapsed_us=elapsed_us)
