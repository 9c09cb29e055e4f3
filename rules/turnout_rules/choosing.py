"""From a matching route to a target that can serve the request, or the reason why there is none.

Weights, scripts, captures and capabilities meet here; nothing is sent and nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from turnout_rules.capabilities import obstacle
from turnout_rules.decision import BLOCK, PASS
from turnout_rules.endpoints import MOVED_BY_NAME
from turnout_rules.hosted_tools import leaves_hosted_out
from turnout_rules.model import Route, Target
from turnout_rules.patterns import compile_pattern
from turnout_rules.targets import Targets, UnknownTarget
from turnout_rules.weights import order_by_weight

if TYPE_CHECKING:
    from turnout_rules.request import Request

_CAPTURE = re.compile(r"\{([1-9]|[A-Za-z_]\w*)\}")
_BOUND = "bound to its origin: "


class Script(Protocol):
    """A route's script; never raises."""

    def choose(self, request: Request) -> str | None:
        """A target's name, or None to leave it to the route's own targets."""


class Choice(msgspec.Struct, frozen=True):
    """Where a route sends a request."""

    target: str
    resolved: Target | None = None
    """None for `pass` and `block`."""
    fallback: tuple[str, ...] = ()
    note: str = ""
    """How it came to be, where the route alone does not tell: a script, a skipped target."""


class Chooser:
    """Chooses targets for a table's routes; holds no state but what it remembers of targets."""

    __slots__ = ("_captures", "_scripts", "_targets")

    def __init__(
        self, routes: Sequence[Route], targets: Targets, scripts: Mapping[str, Script]
    ) -> None:
        """Compile the patterns whose captures fill targets."""
        self._targets = targets
        self._scripts = scripts
        self._captures: dict[str, list[Any]] = {}
        for route in routes:
            patterns = (
                [m[3:].strip() for m in route.when.model if m.startswith("re:")]
                if (route.when)
                else []
            )
            if patterns and any("{" in n for n in (*dict(route.targets), *route.fallback)):
                self._captures[route.name] = [compile_pattern("(?i)" + p) for p in patterns]

    def choose(self, route: Route, request: Request, *, is_named: bool = False) -> Choice | str:
        """Where `route` sends `request`, or in words why it cannot.

        `is_named`: the client asked for this very route, as good as a rule that names the endpoint.
        """
        note = ""
        chosen = None
        if route.script and (script := self._scripts.get(route.script)) is not None:
            chosen = script.choose(request)
            if chosen:
                note = f"{route.script} chose {chosen}"
        names = (chosen,) if chosen else self._own_targets(route, request)
        if not names:
            return f"{route.script} chose nothing" if route.script else "it has no target"
        if names[0] == BLOCK:
            return Choice(BLOCK, note=note)
        bond = _bond(route, request, is_named)
        if names[0] == PASS:
            return Choice(PASS, fallback=() if bond else self._behind(route, request), note=note)
        if bond:
            return bond
        if len(names) == 1 and not route.fallback and route.name not in self._captures:
            able = self._able(names[0], request)
            return able if isinstance(able, str) else Choice(able.name, able, (), note)
        return self._first_able(names, route, request, note)

    def _own_targets(self, route: Route, request: Request) -> tuple[str, ...]:
        if len(route.targets) == 1:
            return (route.targets[0][0],)
        if not route.targets:
            return ()
        return order_by_weight(route.targets, route.name, request.conversation)

    def _first_able(
        self, names: tuple[str, ...], route: Route, request: Request, note: str
    ) -> Choice | str:
        """The first target that can serve; the further ones of `fallback` that can, behind it."""
        first: Target | None = None
        obstacles: list[str] = []
        behind: list[str] = []
        count = len(names)
        for at, name in enumerate(self._filled((*names, *route.fallback), route, request)):
            if first is not None and at < count:
                continue  # the other side of a split stands in, it is no fallback
            if name in (PASS, BLOCK):
                # Only as a route's own target does the origin have somebody behind it.
                if first is None:
                    return Choice(name, note="; ".join(filter(None, (note, *obstacles))))
                break
            if isinstance(found := self._able(name, request), str):
                obstacles.append(found)
            elif first is None:
                first = found
            elif found.name != first.name and found.name not in behind:
                behind.append(found.name)
        if first is None:
            return "; ".join(obstacles)
        if obstacles:
            note = "; ".join(filter(None, (note, *obstacles)))
        return Choice(first.name, first, tuple(behind), note)

    def _behind(self, route: Route, request: Request) -> tuple[str, ...]:
        """Who may answer in the place of the origin: those of `fallback` that can serve."""
        found = (self._able(name, request) for name in self._filled(route.fallback, route, request))
        return tuple(dict.fromkeys(target.name for target in found if isinstance(target, Target)))

    def _able(self, name: str, request: Request) -> Target | str:
        try:
            target = self._targets.resolve(name)
        except UnknownTarget as error:
            return str(error)
        if request.is_bound_by_offer and not leaves_hosted_out(target):
            return _BOUND + request.bound
        found = obstacle(request, target)
        return f"{name}: {found}" if found else target

    def _filled(self, names: tuple[str, ...], route: Route, request: Request) -> Iterator[str]:
        """`names` with their captures filled from the request's model."""
        patterns = self._captures.get(route.name)
        if patterns is None:
            yield from names
            return
        found = next((m for p in patterns if (m := p.search(request.model))), None)
        for name in names:
            yield _CAPTURE.sub(lambda part: _captured(found, part[1]), name)


def _captured(found: Any, group: str) -> str:
    if found is None:
        return ""
    try:
        value: str | None = found.group(int(group) if group.isdigit() else group)
    except (IndexError, KeyError, ValueError):
        return ""
    return value or ""


def _bond(route: Route, request: Request, is_named: bool) -> str:
    if request.endpoint in MOVED_BY_NAME and not is_named:
        when = route.when
        if when is None or request.endpoint not in when.endpoint:
            return f"{request.endpoint} move only by a rule whose `when.endpoint` names them"
    bound = "" if request.is_bound_by_offer else request.bound
    return f"{_BOUND}{bound}" if bound else ""
