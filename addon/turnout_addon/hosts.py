"""Host names and origins: which hosts are opened, where the reverse listener's requests belong.

Never resolves a name and never opens a socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

_PORTS = {"http": 80, "https": 443}


class Origin(msgspec.Struct, frozen=True):
    """Scheme, host and port of a server, and the path its URLs start with (no slash at its end)."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def host_header(self) -> str:
        """The value of `Host`: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def written(self) -> str:
        """Scheme, host and port as one text, to compare with another."""
        return f"{self.scheme}://{self.host.lower()}:{self.port}"

    @property
    def server(self) -> tuple[str, str, int]:
        """What tells two servers apart; paths on one server share its credentials."""
        return (self.scheme, self.host, self.port)


def parse_origin(url: str) -> Origin:
    """Read an `http` or `https` URL; raises `ValueError` with the URL otherwise."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https URL")
    port = parts.port or _PORTS[parts.scheme]
    return Origin(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


class InterceptList:
    """The hosts whose TLS is opened. An entry is a name, `*.name`, or either with `:port`."""

    def __init__(self, entries: Iterable[str]) -> None:
        """Entries compare without case."""
        self._entries = tuple(entry.lower() for entry in entries)
        self._patterns = tuple(_pattern(entry) for entry in self._entries)
        self._regex = re.compile("|".join(self._patterns) or r"(?!)")

    def covers(self, host: str, port: int) -> bool:
        """Whether requests to `host` and `port` are Turnout's business."""
        return self._regex.search(f"{host.lower()}:{port}") is not None

    def patterns(self) -> list[str]:
        """Regular expressions for mitmproxy's `allow_hosts`, which it searches in `host:port`."""
        # An empty allow_hosts would open everything.
        return list(self._patterns) or [r"(?!)"]


def _pattern(entry: str) -> str:
    host, port = entry, r"\d+"
    if match := re.fullmatch(r"(.+):(\d+)", entry):
        host, port = match.groups()
    if host.startswith("*."):
        return rf"^(?:[^:]+\.){re.escape(host[2:])}:{port}$"
    return rf"^{re.escape(host)}:{port}$"
