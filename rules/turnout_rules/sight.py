"""What the rules of one table can see of a request beside the words of its turn.

Two requests of one turn share a decision only if they look alike to every rule. What a turn is
meant to change does not count: growing history, tool results, token counts, attachments of later
rounds. Decides nothing and remembers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from turnout_rules.credentials import AUTH_HEADERS
from turnout_rules.decision import BLOCK
from turnout_rules.languages import language
from turnout_rules.model import Route
from turnout_rules.normalise import normalise
from turnout_rules.request import ATTACHMENTS
from turnout_rules.script_view import fact
from turnout_rules.tool_kinds import FOLDED, TOOL_CAPABILITIES

if TYPE_CHECKING:
    from turnout_rules.matching import Rows
    from turnout_rules.request import Request

_NEVER_IN_THE_WAY = frozenset({"stream", "reasoning", *FOLDED})
"""Needs that stop no target, so that they count only where a rule names them."""
_GROWING = ATTACHMENTS | frozenset(TOOL_CAPABILITIES)
"""Needs that a turn may bring with its messages: what was attached, what was called."""
_IDENTITY_HEADERS = tuple(sorted(AUTH_HEADERS))


class Sight:
    """How requests look to the rules of one table; immutable."""

    __slots__ = ("_by_conversation", "_ignored_needs", "_rows", "_sees_language", "must_look_again")

    def __init__(self, rows: Rows, routes: Iterable[Route], *, by_conversation: bool) -> None:
        """`by_conversation`: decisions are kept over turns, so their words do not count either."""
        routes = tuple(routes)
        whens = [route.when for route in routes if route.when is not None]
        named = {need for when in whens for need in (*when.has, *when.lacks)}
        self._rows = rows
        self._by_conversation = by_conversation
        self._ignored_needs = (ATTACHMENTS | _NEVER_IN_THE_WAY) - (named - ATTACHMENTS)
        # Within a turn the words are the same, and so is their language.
        self._sees_language = by_conversation and any(when.language for when in whens)
        self.must_look_again = any(_may_block(route) for route in routes) and any(
            _sees_growth(route, by_conversation) for route in routes
        )
        """Whether what a turn may change can make a rule refuse a later request of the turn."""

    def key(self, request: Request) -> str:
        """Equal for requests that look alike to every rule; "" for one without words."""
        turn = request.conversation if self._by_conversation else request.turn
        if not turn:
            return ""
        headers = request.headers
        found = self._rows.scanner.find_beside_words(request)
        needs = request.field_needs - self._ignored_needs
        parts = [turn, request.endpoint, request.client, request.host]
        parts += [request.path.partition("?")[0], *(headers.get(n, "") for n in _IDENTITY_HEADERS)]
        parts += [str(sorted(found)) if found else "", ",".join(sorted(needs)) if needs else ""]
        parts += [language(normalise(request.text)) if self._sees_language else ""]
        tasks = (request.stated_task, request.side_task)
        return _digest("\0".join((*parts, *tasks, request.model)))


def script_facts(request: Request, names: Iterable[str]) -> str:
    """A digest of what scripts asked about: `names` as `Request.script_reads` tells them."""
    return _digest(repr([fact(request, name) for name in names]))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _may_block(route: Route) -> bool:
    return bool(route.script) or BLOCK in (*dict(route.targets), *route.fallback)


def _sees_growth(route: Route, by_conversation: bool) -> bool:
    """Whether what a turn (or conversation) changes can make the route match, or match no more."""
    match, when = route.match, route.when
    looks_at_words = match is not None and (
        match.on == "all" or (by_conversation and not match.is_catch_all)
    )
    looks_at_growth = when is not None and (
        when.input_tokens is not None or not _GROWING.isdisjoint((*when.has, *when.lacks))
    )
    return bool(route.script) or looks_at_words or looks_at_growth
