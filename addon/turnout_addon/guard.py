"""Refuses what would make the proxy a way to where its clients must not get through it.

Link-local, metadata and loopback addresses, however they are written, the sidecar, the engines, the
proxy's own ports; pages of other sites that call the reverse listener; strangers on a listener that
other machines reach. Says no; never changes a request that it lets through, but for the proxy's own
password header.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import socket
import time
import weakref
from collections.abc import Collection

from mitmproxy import connection, http

from turnout_addon.hosts import InterceptList
from turnout_rules.addresses import (
    Address,
    is_metadata,
    names_metadata,
    read_address,
    stands_for,
)
from turnout_rules.web_origins import is_own_page

_RESOLVE_TIMEOUT_S = 3.0
_REMEMBER_S = 30.0
_REMEMBER_NAMES = 4_096
OWN_PORT = "that port is Turnout's own"
"""The obstacle of a request that is addressed to the proxy or its neighbours themselves."""
_METADATA = "a cloud's metadata service is not reached through this proxy"


class Guard:
    """Says for a destination why it is refused; empty: it is not."""

    def __init__(self, own_ports: Collection[int]) -> None:
        """`own_ports`: of the proxy, mitmweb, the sidecar; may grow while the proxy starts."""
        self.own_ports = set(own_ports)
        self._names: dict[tuple[str, int], tuple[float, str]] = {}

    async def obstacle(self, host: str, port: int, intercept: InterceptList) -> str:
        """Why a client's request or tunnel to `host` and `port` is refused."""
        if names_metadata(host):
            return _METADATA
        key = (host.lower(), port)
        known = self._names.get(key)
        now = time.monotonic()
        if known is not None and now - known[0] < _REMEMBER_S:
            return known[1]
        is_listed = intercept.covers(host, port)
        reason = ""
        for address in await _addresses(host, port):
            reason = reason or self._address_obstacle(address, port, is_listed=is_listed)
        if len(self._names) >= _REMEMBER_NAMES:
            self._names.clear()
        self._names[key] = (now, reason)
        return reason

    def forget(self) -> None:
        """The intercept list changed."""
        self._names.clear()

    def peer_obstacle(
        self, peer: str, host: str, port: int, *, is_listed: bool, is_destination: bool
    ) -> str:
        """The same for a connection that was opened: names can point elsewhere a moment later.

        `is_listed`: its host is on the intercept list. `is_destination`: the rules name it; by its
        address it may be anywhere, by a name anywhere but at a cloud's metadata.
        """
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return ""
        if not is_destination:
            return self._address_obstacle(address, port, is_listed=is_listed)
        is_name = read_address(host) is None
        return _METADATA if is_name and any(map(is_metadata, stands_for(address))) else ""

    def _address_obstacle(self, address: Address, port: int, *, is_listed: bool) -> str:
        for each in stands_for(address):
            if reason := self._plain_obstacle(each, port, is_listed=is_listed):
                return reason
        return ""

    def _plain_obstacle(self, address: Address, port: int, *, is_listed: bool) -> str:
        if address.is_link_local or address.is_multicast:
            return (
                "link-local (cloud metadata) and multicast addresses are not reached through this "
                "proxy"
            )
        if is_metadata(address):
            return _METADATA
        if port in self.own_ports and _is_local(address):
            return OWN_PORT
        if (address.is_loopback or _is_this_network(address)) and not is_listed:
            return (
                "loopback addresses are not reached through this proxy; "
                "set NO_PROXY=localhost,127.0.0.1,::1 in the client"
            )
        return ""


class ProxyPassword:
    """Basic proxy authentication for a listener that other machines reach."""

    def __init__(self, credentials: str) -> None:
        """`credentials`: `user:password`; empty: nobody is asked."""
        self._expected = credentials.encode()
        self._known: weakref.WeakSet[connection.Client] = weakref.WeakSet()

    def renewed(self, credentials: str) -> ProxyPassword:
        """Itself while the password is the same: open tunnels stay known over a reload."""
        return self if credentials.encode() == self._expected else ProxyPassword(credentials)

    def accepts(self, flow: http.HTTPFlow) -> bool:
        """Whether the flow's client is known by now; its password header is taken off."""
        value = flow.request.headers.pop("proxy-authorization", "")
        if not self._expected or flow.client_conn in self._known:
            return True
        scheme, _, encoded = value.partition(" ")
        try:
            given = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return False
        if scheme.lower() != "basic" or not hmac.compare_digest(given, self._expected):
            return False
        if flow.request.method == "CONNECT":
            self._known.add(flow.client_conn)
        return True


def foreign_page(headers: http.Headers) -> str:
    """Why the reverse listener refuses a browser: another site's page is calling."""
    origins = headers.get_all("origin")
    if origins and is_own_page(origins):
        return ""
    if origins or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "a web page of another site may not use this listener"
    return ""


def is_loopback_host(host: str) -> bool:
    """Whether a listener on `host` is reached by this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _addresses(host: str, port: int) -> list[Address]:
    """Every address of `host`; none if it does not resolve, then connecting fails by itself."""
    if (written := read_address(host)) is not None:
        return [written]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        return []
    return [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]


def _is_this_network(address: Address) -> bool:
    """`0.0.0.0/8` and `::`, which systems take for this machine."""
    return address.is_unspecified or (address.version == 4 and int(address) >> 24 == 0)


def _is_local(address: Address) -> bool:
    """Whether the address is this machine's: only then can a socket be bound to it."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def password_wanted() -> http.Response:
    """The answer to who has not signed in."""
    return http.Response.make(
        407,
        b"turnout: this proxy wants a password\n",
        {"Proxy-Authenticate": 'Basic realm="turnout"'},
    )
