"""Which routes a request matches, in decision order, at the cost of what was hit.

Every route is a row: groups of conditions of which one each must hold, conditions that must not,
and demands on the request. A row is filed under the conditions of one of its groups, so rows that
were not hit are never looked at. Rows without any group (only `none`, only sizes, the catch-all)
are few and are looked at in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.decision import Hit
from turnout_rules.model import Route, When
from turnout_rules.problems import Problem, RulesError
from turnout_rules.scanning import EVERYTHING, Conditions, Scanner
from turnout_rules.when import Demands

if TYPE_CHECKING:
    from turnout_rules.request import Request

# Up to so many rows that are always looked at, sorting all is cheaper than merging lazily.
_FEW = 32


class Row(msgspec.Struct, frozen=True):
    """One route, compiled."""

    order: int
    route: Route
    groups: tuple[frozenset[int], ...]
    """Of each group one condition must hold; the row is filed under the first."""
    banned: frozenset[int]
    demands: Demands | None
    entries: tuple[tuple[int, str], ...]
    """(number, entry as written) of every positive condition on text, in the order written."""
    banned_entries: tuple[tuple[int, str], ...] = ()

    def holds(self, found: set[int], request: Request) -> bool:
        """Whether the route matches."""
        for group in self.groups:
            if group.isdisjoint(found):
                return False
        if self.banned and not self.banned.isdisjoint(found):
            return False
        return self.demands is None or not self.demands.failure(request)

    def written(self, found: set[int]) -> list[str]:
        """The text entries of the route that hold, as they are written."""
        return [entry for number, entry in self.entries if number in found]

    def failure(self, found: set[int], request: Request) -> str:
        """Why the route does not match, in words; empty: it does."""
        for number, entry in self.banned_entries:
            if number in found:
                return f"`none: {entry}` is in the text"
        for group in self.groups:
            if group.isdisjoint(found):
                missing = [entry for number, entry in self.entries if number in group]
                if missing:
                    return f"`{missing[0]}` is not in the text"
                return "its `when` does not hold"
        return self.demands.failure(request) if self.demands else ""


class Rows:
    """All rows of a table and the index over them; immutable."""

    __slots__ = ("_always", "_filed", "all", "scanner")

    def __init__(self, routes: Sequence[Route]) -> None:
        """Compile `routes` (in decision order); raises RulesError with every bad entry."""
        conditions = Conditions()
        problems: list[Problem] = []
        self.all = tuple(_row(n, r, conditions, problems) for n, r in enumerate(routes))
        if problems:
            raise RulesError(problems)
        self.scanner = _scanner(conditions, routes)
        self._filed: dict[int, list[int]] = {}
        always = []
        for row in self.all:
            if not is_rule(row.route):
                continue
            if not row.groups:
                always.append(row.order)
            for number in row.groups[0] if row.groups else ():
                self._filed.setdefault(number, []).append(row.order)
        self._always = tuple(always)

    def matching(self, found: set[int], request: Request) -> Iterator[Row]:
        """The rows that match, in decision order, found lazily."""
        filed = self._filed
        orders: set[int] = set()
        for number in found:
            if (hit := filed.get(number)) is not None:
                orders.update(hit)
        rows = self.all
        always: Iterable[int] = self._always
        if orders and len(self._always) <= _FEW:
            always = sorted(orders.union(always))
        elif orders:
            always = merge(sorted(orders), always)
        for order in always:
            row = rows[order]
            if row.holds(found, request):
                yield row

    def touched(self, found: set[int]) -> Iterator[tuple[Row, list[str]]]:
        """Every row of which a text entry holds, with those entries; for explanations."""
        for row in self.all:
            if written := row.written(found):
                yield row, written

    def hits(self, found: set[int]) -> tuple[Hit, ...]:
        """Every entry of every route that holds."""
        return tuple(Hit(row.route.name, e) for row, hit in self.touched(found) for e in hit)


def _scanner(conditions: Conditions, routes: Sequence[Route]) -> Scanner:
    try:
        return conditions.scanner()
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        place = routes[0].place
        problem = Problem(place.file, 0, 0, "error", "patterns-too-large", message, remedy)
        raise RulesError([problem]) from error


def is_rule(route: Route) -> bool:
    """Whether the first layer may choose the route at all, or only the classifier or its name."""
    return (
        route.match is not None
        or route.when is not None
        or bool(route.script and not route.examples)
    )


def in_decision_order(routes: Sequence[Route]) -> list[Route]:
    """Higher priority first, then file order."""
    return sorted(routes, key=lambda r: (-r.priority, r.order))


def _row(order: int, route: Route, conditions: Conditions, problems: list[Problem]) -> Row:
    read = _Reading(route, conditions, problems)
    groups: list[frozenset[int]] = []
    banned: list[tuple[int, str]] = []
    entries: list[tuple[int, str]] = []
    if (match := route.match) is not None:
        part = match.on
        either = [] if EVERYTHING in match.any else read.texts(part, match.any)
        every = sorted(read.texts(part, match.all), key=lambda pair: -len(pair[1]))
        banned = read.texts(part, match.none)
        entries = either + every
        # Filed under the longest of `all`, else under each of `any`: the rarer, the cheaper.
        groups += [frozenset((number,)) for number, _ in every]
        if either:
            groups.append(frozenset(number for number, _ in either))
    demands = None
    if (when := route.when) is not None:
        groups += read.fields(when)
        demands = read.demands(when)
    return Row(
        order,
        route,
        tuple(groups),
        frozenset(number for number, _ in banned),
        demands,
        tuple(entries),
        tuple(banned),
    )


class _Reading:
    """Reads one route's conditions and keeps what is wrong with them."""

    def __init__(self, route: Route, conditions: Conditions, problems: list[Problem]) -> None:
        self._route = route
        self._conditions = conditions
        self._problems = problems

    def texts(self, part: str, entries: Sequence[str]) -> list[tuple[int, str]]:
        found = []
        for entry in entries:
            try:
                found.append((self._conditions.text(part, entry), entry))  # type: ignore[arg-type]
            except ValueError as error:
                self._wrong(entry, error)
        return found

    def fields(self, when: When) -> list[frozenset[int]]:
        headers: Mapping[str, tuple[str, ...]] = {f"header:{n}": g for n, g in when.header}
        fields = {"model": when.model, **headers, "path": when.path, "task": when.task}
        groups = []
        for name, globs in {**fields, "endpoint": when.endpoint}.items():
            numbers = set()
            for glob in globs:
                try:
                    numbers.add(self._conditions.field(name, glob))
                except ValueError as error:
                    self._wrong(glob, error)
            if numbers:
                groups.append(frozenset(numbers))
        return groups

    def demands(self, when: When) -> Demands | None:
        try:
            demands = Demands(when)
        except ValueError as error:
            self._wrong("", error)
            return None
        return None if demands.is_empty else demands

    def _wrong(self, entry: str, error: ValueError) -> None:
        route = self._route
        place = route.match.places.get(entry, route.place) if route.match else route.place
        what = f"route `{route.name}`: `{entry}`: " if entry else f"route `{route.name}`: "
        message, _, remedy = str(error).partition("; ")
        at = (place.file, place.line, place.column)
        code = "bad-pattern" if entry.startswith("re:") else "bad-entry"
        self._problems.append(Problem(*at, "error", code, what + message, remedy))
