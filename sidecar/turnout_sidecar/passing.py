"""A request that the proxy would pass, sent to its origin from here, so that another may answer.

The proxy hands over the URL and the client's own headers under names of their own
(`x-turnout-pass-*`): they go to that origin as they came and to no other target, for no header of
such a name ever leaves the gateway. Pure: nothing is sent here.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import certifi

from turnout_rules.decision import PASS
from turnout_rules.model import Model, Target, Upstream
from turnout_rules.settings import Proxy

URL_HEADER = "x-turnout-pass-to"
PREFIX = "x-turnout-pass-"
_PORTS = {"http": 80, "https": 443}


class ForeignOrigin(Exception):
    """The URL is of no server whose requests are Turnout's business."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The request as its client sent it. Never printed whole: it holds credentials."""

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    server: str
    """`host:port` of the origin."""

    @property
    def target(self) -> Target:
        """The origin in the place of a target, called `pass`."""
        upstream = Upstream(name=PASS, base_url=f"https://{self.server}")
        return Target(PASS, upstream, Model(name=PASS))


def passed(headers: Iterable[tuple[str, str]], body: bytes, proxy: Proxy) -> Passed | None:
    """What the proxy handed over, None if nothing; raises `ForeignOrigin`.

    Only servers that the proxy itself would open are reached: hosts of `proxy.intercept`, and the
    reverse listener's origins.
    """
    url, own = "", []
    for name, value in headers:
        low = name.lower()
        if low == URL_HEADER:
            url = value
        elif low.startswith(PREFIX):
            own.append((name[len(PREFIX) :], value))
    if not url:
        return None
    return Passed(url, tuple(own), body, _server(url, proxy))


def origin_trust(proxy: Proxy) -> ssl.SSLContext | None:
    """What certifies origins besides the public roots, by `proxy.upstream_ca`; None: nothing does.

    Reads files; raises `OSError` (`ssl.SSLError` is one).
    """
    if not proxy.upstream_ca:
        return None
    context = ssl.create_default_context(cafile=certifi.where())
    # mitmproxy verifies so, too: the certificates of many companies lack a key identifier.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cafile=Path(proxy.upstream_ca).expanduser())
    return context


def _server(url: str, proxy: Proxy) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise ForeignOrigin from None
    server = f"{(parts.hostname or '').lower()}:{port}"
    own = [_host_and_port(base) for base in (proxy.origin, proxy.anthropic_origin)]
    entries = [e if ":" in e else f"{e}:*" for e in map(str.lower, proxy.intercept)]
    if parts.username or not any(fnmatchcase(server, entry) for entry in (*entries, *own)):
        raise ForeignOrigin
    return server


def _host_and_port(base: str) -> str:
    parts = urlsplit(base)
    return f"{(parts.hostname or '').lower()}:{parts.port or _PORTS.get(parts.scheme, 0)}"
