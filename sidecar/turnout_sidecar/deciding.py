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

from turnout_rules.decision import Decision, Verdict
from turnout_rules.decision_flow import decide
from turnout_rules.decision_log import DecisionLog, Source
from turnout_rules.request import Request
from turnout_sidecar.live_rules import Snapshot
from turnout_sidecar.metrics import Metrics

if TYPE_CHECKING:
    from turnout_sidecar.classifiers.base import Classifier

log = logging.getLogger(__name__)


class Decider:
    """Decides requests. `classifier` is None when there is none, `classifier_problem` says why."""

    def __init__(self, metrics: Metrics, decisions: DecisionLog) -> None:
        """No classifier yet: `classifier` is set when one is ready."""
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

        async def classify(request: Request) -> Verdict:
            return await self.classify(request.text, request.attachments, snapshot)

        decision = await decide(
            snapshot.rules,
            request,
            classify,
            turns=snapshot.turns if is_sticky else None,
            now=asyncio.get_running_loop().time(),
        )
        decision = self._finished(decision, started, source)
        if not decision.is_remembered:
            version = snapshot.table.version
            self._log.record(request.text, decision, version=version, source=source)
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

    def _finished(self, decision: Decision, started: int, source: str) -> Decision:
        elapsed_us = (time.perf_counter_ns() - started) / 1000
        self._metrics.decisions.labels(decision.route or "", decision.layer, source).inc()
        self._metrics.decision_seconds.labels(decision.layer).observe(elapsed_us / 1e6)
        return msgspec.structs.replace(decision, elapsed_us=elapsed_us)
