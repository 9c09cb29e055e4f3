"""A request's way through its targets: the first that answers serves it.

Fallback ends with the first content: once an `Exchange` is out, nothing is tried again. Targets
that rest are passed over; each attempt is named in the answer, the metrics and the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from turnout_rules.capabilities import obstacle
from turnout_rules.decision import PASS, Decision
from turnout_rules.model import Route, Target
from turnout_rules.naming import printable
from turnout_rules.request import Request
from turnout_rules.table import UnknownTarget
from turnout_sidecar.exchanging import Exchange, Failed
from turnout_sidecar.failures import Failure
from turnout_sidecar.forwarding import Errand, Forwarder
from turnout_sidecar.live_rules import Snapshot
from turnout_sidecar.metrics import Metrics, target_label
from turnout_sidecar.moved_turns import MovedTurns
from turnout_sidecar.passing import Passed
from turnout_sidecar.resting import Resting

log = logging.getLogger(__name__)
MANAGED_RETRIES = 2
"""A local engine that died under a request is started again for it so many times."""
MANAGED_RETRY_PAUSE_S = 0.25


@dataclass(slots=True)
class Journey:
    """One request under way; `attempts` grows as targets are tried."""

    request: Request
    headers: Iterable[tuple[str, str]]
    decision: Decision
    snapshot: Snapshot
    priority: str = "interactive"
    client: str = ""
    room_timeout_s: float | None = None
    """How long to wait for room; None: the settings' own."""
    on_wait: Callable[[Any], None] | None = None
    origin: Passed | None = None
    """The request as it came, where its origin is the first target (`pass`)."""
    attempts: list[str] = field(default_factory=list)

    @property
    def turn(self) -> tuple[str, ...]:
        """The client's human turn under its route; empty: of no turn, or not to be passed."""
        if self.decision.target != PASS or not self.request.turn:
            return ()
        return (self.client, self.decision.route or "", self.request.turn)

    @property
    def route(self) -> Route | None:
        """The route that was decided, if it still has that name in the snapshot."""
        name = self.decision.route
        return self.snapshot.table.route(name) if name else None

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets in the order they are tried, each once."""
        return tuple(dict.fromkeys((self.decision.target, *self.decision.fallback)))


class Undeliverable(Exception):
    """No target answered. `failure` is what the client is told."""

    def __init__(self, failure: Failure) -> None:
        """Carry `failure`."""
        super().__init__(failure.message)
        self.failure = failure


class Dispatcher:
    """Tries targets in order. Owns which of them rest, and which turns have left their origin."""

    def __init__(self, forwarder: Forwarder, metrics: Metrics, cooldown_s: float) -> None:
        """`cooldown_s` counts where an upstream names none of its own."""
        self._forwarder = forwarder
        self._metrics = metrics
        self.resting = Resting(cooldown_s)
        self._moved = MovedTurns()

    async def dispatch(self, journey: Journey) -> Exchange:
        """The first target's answer; raises `Undeliverable`."""
        last: Failure | None = None
        rested: list[Target] = []
        for name in self._order(journey):
            is_fallback = name != journey.decision.target
            target = self._usable(journey, name, is_fallback=is_fallback)
            if target is None:
                continue
            rest_name = _rest_name(journey, target)
            if not target.upstream.is_managed and not self.resting.admit(rest_name, _now()):
                rested.append(target)
                self._record(journey, target, "resting")
                continue
            outcome = await self._try(journey, target)
            if isinstance(outcome, Exchange):
                self._note_move(journey, target)
                return outcome
            last = outcome
            if not outcome.is_retryable:
                break
        if last is None and rested:
            outcome = await self._last_resort(journey, rested)
            if isinstance(outcome, Exchange):
                return outcome
            last = outcome
        raise Undeliverable(last or _nobody(journey))

    def rests(self, now: float) -> dict[str, float]:
        """Every target that rests, with the seconds left; origins, whoever asks, as one `pass`."""
        rests: dict[str, float] = {}
        for name, left_s in self.resting.resting(now).items():
            shown = PASS if name.startswith(f"{PASS} ") else name
            rests[shown] = max(left_s, rests.get(shown, 0.0))
        return rests

    def _order(self, journey: Journey) -> tuple[str, ...]:
        """All targets, each once; a turn that has left its origin goes there only as a last way."""
        ttl_s = journey.snapshot.settings.reading.turn_ttl_s
        taker = self._moved.target(journey.turn, _now(), ttl_s) if journey.turn else None
        if taker is None:
            return journey.targets
        return tuple(dict.fromkeys((taker, *journey.decision.fallback, PASS)))

    def _note_move(self, journey: Journey, target: Target) -> None:
        if journey.turn and target.name != PASS:
            limit = journey.snapshot.settings.reading.max_turns
            self._moved.took(journey.turn, target.name, _now(), limit)

    def _usable(self, journey: Journey, name: str, *, is_fallback: bool) -> Target | None:
        """The target, unless it is unknown, or a fallback that cannot serve this request."""
        if name == PASS and journey.origin is not None:
            return journey.origin.target
        try:
            target = journey.snapshot.table.resolve(name)
        except UnknownTarget:
            journey.attempts.append(f"{name}=unknown")
            return None
        if is_fallback and (reason := obstacle(journey.request, target)):
            self._record(journey, target, f"unfit ({reason})", label="unfit")
            return None
        return target

    async def _try(self, journey: Journey, target: Target) -> Exchange | Failure:
        """One target, a dying local engine more than once; records how it went."""
        for tries_left in range(MANAGED_RETRIES, -1, -1):
            try:
                exchange = await self._forwarder.open(_errand(journey, target))
            except Failed as failed:
                failure = failed.failure
            except BaseException:
                self.resting.abandoned(_rest_name(journey, target))
                raise
            else:
                self._record(journey, target, str(exchange.status))
                self.resting.succeeded(_rest_name(journey, target))
                exchange.attempts = tuple(journey.attempts)
                return exchange
            self._record(journey, target, failure.kind)
            self._judge(target, _rest_name(journey, target), failure)
            has_died = target.upstream.is_managed and failure.kind in ("connect", "broken")
            if not has_died or not tries_left:
                return failure
            await asyncio.sleep(MANAGED_RETRY_PAUSE_S)
        raise AssertionError("unreachable")

    async def _last_resort(self, journey: Journey, rested: list[Target]) -> Exchange | Failure:
        """All targets rest: one that asked for it is left alone, else the soonest is tried."""
        names = {_rest_name(journey, target): target for target in rested}
        name = min(names, key=lambda name: self.resting.rest_left_s(name, _now()))
        left_s, soonest = self.resting.rest_left_s(name, _now()), names[name]
        if self.resting.is_asked(name) and left_s > 0:
            return Failure(
                kind="resting",
                status=429,
                code="upstream_resting",
                message=f"{soonest.name} asked not to be called for another {left_s:.0f} s",
                retry_after_s=left_s,
            )
        return await self._try(journey, soonest)

    def _judge(self, target: Target, rest_name: str, failure: Failure) -> None:
        if target.upstream.is_managed:
            return  # the keeper of engines has its own back-off
        if not failure.is_targets_fault:
            self.resting.abandoned(rest_name)
            return
        self.resting.failed(
            rest_name,
            _now(),
            retry_after_s=failure.retry_after_s,
            cooldown_s=target.upstream.cooldown_s,
        )

    def _record(self, journey: Journey, target: Target, outcome: str, label: str = "") -> None:
        journey.attempts.append(f"{target.name}={outcome}")
        self._metrics.attempts.labels(target_label(target), label or outcome).inc()
        if not outcome.startswith("2"):
            name = printable(target.name)
            log.info("attempt: route=%s %s=%s", journey.decision.route, name, outcome)


def _errand(journey: Journey, target: Target) -> Errand:
    settings = journey.snapshot.settings.sidecar
    route = journey.route
    room_s = journey.room_timeout_s
    return Errand(
        request=journey.request,
        headers=journey.headers,
        target=target,
        route=route,
        keyring=journey.snapshot.keyring,
        priority=journey.priority,
        client=journey.client,
        room_timeout_s=settings.router_timeout_ms / 1000 if room_s is None else room_s,
        deadline_s=route.timeout_ms / 1000 if route and route.timeout_ms else None,
        first_byte_s=settings.first_byte_timeout_ms / 1000,
        on_wait=journey.on_wait,
        origin=journey.origin if target.name == PASS else None,
        origin_proxy=journey.snapshot.settings.proxy.upstream_proxy,
        origin_trust=journey.snapshot.origin_trust,
    )


def _rest_name(journey: Journey, target: Target) -> str:
    """An origin's limits are those of the client's own key: one client's rest is nobody else's."""
    if target.name != PASS or journey.origin is None:
        return target.name
    return f"{PASS} {journey.origin.server} {journey.client}"


def _nobody(journey: Journey) -> Failure:
    tried = ", ".join(journey.attempts) or "no target"
    return Failure(
        kind="nobody",
        status=503,
        code="no_target",
        message=f"no target can serve this request: {tried}",
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
