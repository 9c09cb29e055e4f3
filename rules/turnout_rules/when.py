"""What `when:` demands beside its globs: clients, capabilities, size, language.

These are looked at only for routes whose other conditions hold, so a dear fact (the size in tokens,
what the messages hold) is computed only when a route that was hit asks for it.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING

from turnout_rules.languages import language
from turnout_rules.model import Span, When
from turnout_rules.normalise import normalise

if TYPE_CHECKING:
    from turnout_rules.request import Request

type _Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_language_of = lru_cache(maxsize=256)(language)


class Demands:
    """The rest of one route's `when`, ready to be asked."""

    __slots__ = ("_clients", "_has", "_lacks", "_languages", "_tokens")

    def __init__(self, when: When) -> None:
        """Read the networks once; invalid ones raise ValueError."""
        self._clients = tuple(ipaddress.ip_network(c, strict=False) for c in when.client)
        self._has = frozenset[str](when.has)
        self._lacks = frozenset[str](when.lacks)
        self._tokens = when.input_tokens
        self._languages = frozenset(code.lower().partition("-")[0] for code in when.language)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is demanded."""
        return not (self._clients or self._has or self._lacks or self._tokens or self._languages)

    def failure(self, request: Request) -> str:
        """The first demand that `request` does not meet, in words; empty: it meets all."""
        if self._clients and not _is_inside(request.client, self._clients):
            return f"client {request.client or 'unknown'} is in none of its networks"
        if self._has or self._lacks:
            facts = {*request.needs, "stream"} if request.stream else request.needs
            if missing := self._has - facts:
                return f"the request has no {', '.join(sorted(missing))}"
            if present := self._lacks & facts:
                return f"the request has {', '.join(sorted(present))}"
        if self._tokens is not None and not _is_within(request.input_tokens, self._tokens):
            return f"{request.input_tokens:,} input tokens are outside its range"
        if self._languages:
            found = _language_of(normalise(request.text))
            if found not in self._languages:
                return f"the language is {found or 'unknown'}"
        return ""


def _is_within(value: int, span: Span) -> bool:
    return (span.min is None or value >= span.min) and (span.max is None or value <= span.max)


def _is_inside(client: str, networks: tuple[_Network, ...]) -> bool:
    try:
        address = _address(client)
    except ValueError:
        return False
    return any(address in network for network in networks)


@lru_cache(maxsize=1024)
def _address(client: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(client.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
