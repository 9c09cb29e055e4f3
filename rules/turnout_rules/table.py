"""The routing table: immutable, built once from the rules, asked for every request.

`decide` costs the request's text and what it hits, not the number of rules. It reads no clock, no
file and no network; two tables never share state, so a reload swaps one for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.choosing import Choice, Chooser, Script
from turnout_rules.convention import Named, named_route
from turnout_rules.decision import BLOCK, PASS, Decision, Layer, Verdict
from turnout_rules.endpoints import MOVED_BY_NAME
from turnout_rules.matching import Rows, in_decision_order, is_rule
from turnout_rules.model import Route, Target, Upstream
from turnout_rules.naming import no_route_called
from turnout_rules.reasons import pass_reason, rule_reason
from turnout_rules.targets import Targets
from turnout_rules.targets import UnknownTarget as UnknownTarget

if TYPE_CHECKING:
    from turnout_rules.explaining import Explanation
    from turnout_rules.request import Request

_MAX_SKIPPED = 16


def build_table(
    routes: Sequence[Route],
    upstreams: Mapping[str, Upstream],
    *,
    version: str = "",
    scripts: Mapping[str, Script] | None = None,
    observe: bool = False,
) -> Table:
    """The table for `routes`; raises RulesError with the place of every entry it cannot use."""
    return Table(routes, upstreams, version=version, scripts=scripts or {}, observe=observe)


class Table:
    """All routes, ready to decide."""

    def __init__(
        self,
        routes: Sequence[Route],
        upstreams: Mapping[str, Upstream],
        *,
        version: str,
        scripts: Mapping[str, Script],
        observe: bool,
    ) -> None:
        """Compile the routes. Nothing below changes afterwards."""
        self.routes = tuple(in_decision_order(routes))
        self.upstreams = upstreams
        self.version = version
        self.observe = observe
        self.default = _trailing_catch_all(self.routes)
        self.semantic_routes = tuple(r for r in self.routes if r.is_semantic)
        self.rows = Rows(self.routes)
        self._by_name = {route.name: route for route in reversed(self.routes)}
        self._targets = Targets(upstreams)
        self._chooser = Chooser(self.routes, self._targets, scripts)

    def route(self, name: str) -> Route | None:
        """The route called `name`."""
        return self._by_name.get(name)

    def resolve(self, target: str) -> Target:
        """The target called `target`; raises UnknownTarget."""
        return self._targets.resolve(target)

    def is_named(self, request: Request) -> bool:
        """Whether the request names a route itself, be there one or not."""
        return named_route(request, self._by_name) is not None

    def decide(self, request: Request) -> Decision:
        """Where `request` goes by the rules alone. `elapsed_us` is the caller's to fill in."""
        named = named_route(request, self._by_name)
        if named is not None:
            return self._decide_named(named, request)
        return self.decide_found(self.rows.scanner.find(request), request)

    def decide_found(self, found: set[int], request: Request) -> Decision:
        """`decide` when the conditions that hold are known already."""
        skipped: list[str] = []
        for row in self.rows.matching(found, request):
            route = row.route
            if route is self.default:
                break
            choice = self._chooser.choose(route, request)
            if isinstance(choice, Choice):
                reason = rule_reason(route, row.written(found), request)
                return self._decision(request, route, choice, "rule", reason, tuple(skipped))
            if len(skipped) < _MAX_SKIPPED:
                skipped.append(f"{route.name}: {choice}")
        return self._undecided(request, skipped)

    def settle(self, request: Request, decision: Decision, verdict: Verdict | None) -> Decision:
        """The decision after the classifier has spoken (None: it could not be asked)."""
        if not decision.wants_classifier:
            return decision if verdict is None else _with_verdict(decision, verdict)
        if verdict is None or not verdict.is_accepted:
            return _with_verdict(decision, verdict)
        route = self._by_name.get(verdict.route or "")
        choice = self._chooser.choose(route, request) if route else "no such route"
        if route is None or isinstance(choice, str):
            skipped = (*decision.skipped, f"{verdict.route}: {choice}")
            kept = msgspec.structs.replace(decision, skipped=skipped)
            return _with_verdict(kept, verdict)
        reason = f"classifier: {verdict.probability:.2f} ≥ {verdict.threshold:.2f}"
        if verdict.reason:
            reason += f", {verdict.reason}"
        settled = self._decision(request, route, choice, "semantic", reason, decision.skipped)
        return msgspec.structs.replace(settled, verdict=verdict)

    def explain(self, request: Request) -> Explanation:
        """The decision with every hit, and why the others lost."""
        from turnout_rules.explaining import explain

        return explain(self, request)

    def _decide_named(self, named: Named, request: Request) -> Decision:
        route = self._by_name.get(named.route)
        if route is None:
            return Decision(
                route=None,
                target=BLOCK,
                layer="rule",
                reason=f"{named.by}: no route is called so",
                message=no_route_called(named.route, (each.name for each in self.routes)),
                task=request.task,
                is_observed=self.observe,
            )
        choice = self._chooser.choose(route, request, is_named=True)
        if isinstance(choice, Choice):
            return self._decision(request, route, choice, "rule", f"named by {named.by}", ())
        skipped = (f"{route.name}: {choice}",)
        reason = f"named by {named.by}, but {choice}"
        return _passed(request, reason, skipped)

    def _undecided(self, request: Request, skipped: list[str]) -> Decision:
        """No rule decides: the default route, or none; the classifier may know better."""
        wants_classifier = bool(
            self.semantic_routes
            and request.endpoint not in MOVED_BY_NAME
            and not request.bound
            and request.text.strip()
        )
        route = self.default
        choice = self._chooser.choose(route, request) if route is not None else ""
        if route is not None and isinstance(choice, Choice):
            reason = "no rule that matched can serve it" if skipped else "no rule matched"
            return self._decision(
                request,
                route,
                choice,
                "default",
                f"{reason}: the default route decides",
                tuple(skipped),
                wants_classifier=wants_classifier,
            )
        if route is not None:
            skipped.append(f"{route.name}: {choice}")
        passed = _passed(request, pass_reason(skipped), tuple(skipped))
        return msgspec.structs.replace(passed, wants_classifier=wants_classifier)

    def _decision(
        self,
        request: Request,
        route: Route,
        choice: Choice,
        layer: Layer,
        reason: str,
        skipped: tuple[str, ...],
        *,
        wants_classifier: bool = False,
    ) -> Decision:
        target = choice.resolved
        return Decision(
            route=route.name,
            target=choice.target,
            layer=layer,
            reason=f"{reason}; {choice.note}" if choice.note else reason,
            task=request.task,
            fallback=choice.fallback,
            skipped=skipped,
            message=route.message if choice.target == BLOCK else "",
            wants_classifier=wants_classifier,
            is_observed=self.observe or route.observe,
            via_sidecar=bool(choice.fallback)
            or (
                target is not None and (route.timeout_ms is not None or target.upstream.is_managed)
            ),
        )


def _trailing_catch_all(routes: Sequence[Route]) -> Route | None:
    """The first catch-all that has no rule but catch-alls behind it; `routes` in decision order."""
    default = None
    for route in reversed(routes):
        if route.is_catch_all:
            default = route
        elif is_rule(route):
            break
    return default


def _passed(request: Request, reason: str, skipped: tuple[str, ...] = ()) -> Decision:
    return Decision(
        route=None,
        target=PASS,
        layer="pass",
        reason=reason,
        task=request.task,
        skipped=skipped,
    )


def _with_verdict(decision: Decision, verdict: Verdict | None) -> Decision:
    reason = decision.reason
    if verdict is None:
        reason += "; the classifier did not answer"
    elif decision.wants_classifier and not verdict.is_accepted:
        if verdict.route is None:
            reason += f"; the classifier: {verdict.reason or 'none of the routes'}"
        else:
            odds = f"{verdict.probability:.2f} < {verdict.threshold:.2f}"
            second = ""
            if verdict.runner_up is not None:
                second = f", then {verdict.runner_up} {verdict.runner_up_probability:.2f}"
            reason += f"; the classifier is not sure ({verdict.route} {odds}{second})"
    return msgspec.structs.replace(decision, verdict=verdict, wants_classifier=False, reason=reason)


__all__ = ["Script", "Table", "UnknownTarget", "build_table"]
