"""One version of the rules and what decides with it: table, reader, keys, remembered turns.

Swapped whole at a reload; a request keeps the `Routing` it started with. Sends nothing and changes
no flow.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from turnout_addon.hosts import InterceptList, Origin, parse_origin
from turnout_rules.credentials import Keyring
from turnout_rules.decision import PASS, Decision
from turnout_rules.decision_flow import Classify, decide
from turnout_rules.endpoints import MOVED_BY_NAME
from turnout_rules.loading import Rules
from turnout_rules.reading import Reader
from turnout_rules.request import Request
from turnout_rules.turns import Turns


class Routing:
    """Decides with one version of the rules."""

    def __init__(self, rules: Rules, environ: Mapping[str, str]) -> None:
        """Read the keys now, so that a request never waits for a file."""
        self.rules = rules
        self.table = rules.table
        self.settings = rules.settings
        self.version = rules.version
        proxy = rules.settings.proxy
        self.reader = Reader(rules.settings.reading)
        self.keyring = Keyring(rules.table.upstreams, environ)
        self.turns = Turns(rules.table, rules.settings.reading)
        self.intercept = InterceptList(proxy.intercept)
        self.origin = parse_origin(proxy.origin)
        self.anthropic_origin = parse_origin(proxy.anthropic_origin)
        bases = [u.base_url for u in rules.table.upstreams.values() if u.base_url]
        self.bases = {url: parse_origin(url) for url in bases}
        named = {name for r in rules.table.routes if r.when for name in r.when.endpoint}
        self.unread = MOVED_BY_NAME - named - {"embeddings"}
        """Endpoints that no rule can move: their bodies, often large, are not even collected."""
        self.destinations = {(o.host, o.port) for o in self._known_origins()}
        """Host and port of every server that the rules themselves name."""

    def origin_of(self, path: str, *, speaks_anthropic: bool) -> Origin:
        """Where the reverse listener's request for `path` belongs."""
        is_anthropic = speaks_anthropic or path.startswith("/v1/messages")
        return self.anthropic_origin if is_anthropic else self.origin

    def leads_to(self, host: str, port: int, gateway: Origin | None) -> bool:
        """Whether the rules name this server, or it is the sidecar's `gateway`."""
        if gateway is not None and (host, port) == (gateway.host, gateway.port):
            return True
        return (host, port) in self.destinations

    async def decide(
        self, request: Request, classify: Classify, *, is_sticky: bool = True
    ) -> Decision:
        """The whole decision, both layers; a sticky one may be that of the request's turn."""
        turns = self.turns if is_sticky else None
        return await decide(self.rules, request, classify, turns=turns, now=time.monotonic())

    def _known_origins(self) -> list[Origin]:
        origins = [self.origin, self.anthropic_origin, *self.bases.values()]
        if company_proxy := self.settings.proxy.upstream_proxy:
            origins.append(parse_origin(company_proxy))
        return origins


def passed(reason: str) -> Decision:
    """The decision about a request that is none of the rules' business."""
    return Decision(route=None, target=PASS, layer="pass", reason=reason)
