"""Which request headers cross to another host, and the target's own key. Deny by default.

A header goes on only if it is on the list below; the client's credentials, cookies and organisation
never are. Keys are read once, kept here, and never shown: not in `repr`, not in messages.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from turnout_rules.model import Route, Target, Upstream
from turnout_rules.providers import host_of, is_azure
from turnout_rules.settings import Settings

_ALLOWED = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "content-type",
        "user-agent",
        "anthropic-version",
        "anthropic-beta",
    }
)
AUTH_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""Headers in which clients send who they are."""
_ANTHROPIC_HOST = "api.anthropic.com"
_ANTHROPIC_VERSION = "2023-06-01"


class MissingKey(Exception):
    """A target has no key of its own, so the request must not go there."""

    def __init__(self, upstream: str, reason: str) -> None:
        """Name the upstream and what is missing (never a key)."""
        self.upstream = upstream
        self.reason = reason
        super().__init__(f"upstream {upstream!r}: {reason}")


class _Key(msgspec.Struct, frozen=True):
    value: str = ""
    trouble: str = ""

    def __repr__(self) -> str:
        return "_Key(***)" if self.value else f"_Key({self.trouble!r})"


def secret_variables(upstreams: Mapping[str, Upstream], settings: Settings) -> frozenset[str]:
    """The variables that the rules themselves say hold keys and passwords."""
    named = {upstream.api_key_env for upstream in upstreams.values()}
    named |= {settings.proxy.auth, settings.classifier.api_key_env}
    return frozenset(named - {""})


class Keyring:
    """The upstreams' keys, read at construction."""

    def __init__(self, upstreams: Mapping[str, Upstream], environ: Mapping[str, str]) -> None:
        """Read every key; one that is missing is only an error when it is needed."""
        self._keys = {name: _read_key(up, environ) for name, up in upstreams.items()}
        self._environ = environ

    def __repr__(self) -> str:
        """Names only."""
        return f"<Keyring of {len(self._keys)} upstreams>"

    def outgoing(
        self, headers: Iterable[tuple[str, str]], target: Target, route: Route | None
    ) -> list[tuple[str, str]]:
        """The headers for `target`: what may cross, its key, the upstream's and route's own."""
        upstream = target.upstream
        kept = _crossing(headers)
        # By lower-case name: the route's outrank the upstream's however they are spelt.
        own = {name.lower(): (name, value) for name, value in upstream.headers.items()}
        if route is not None:
            own |= {name.lower(): (name, value) for name, value in route.headers.items()}
        own_names = own.keys()
        result = [(name, value) for name, value in kept if name.lower() not in own_names]
        speaks_anthropic = any(name.lower() == "anthropic-version" for name, _ in kept)
        key = self._key_for(upstream)
        if key.value:
            credentials = _credentials(upstream, key.value, speaks_anthropic=speaks_anthropic)
            result += [pair for pair in credentials if pair[0] not in own_names]
        elif AUTH_HEADERS.isdisjoint(own_names) and (trouble := _trouble(upstream, key)):
            raise MissingKey(upstream.name, trouble)
        return [*result, *own.values()]

    def _key_for(self, upstream: Upstream) -> _Key:
        key = self._keys.get(upstream.name)
        return key if key is not None else _read_key(upstream, self._environ)


def _crossing(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    kept = []
    for name, value in headers:
        lower = name.lower()
        if lower not in _ALLOWED:
            continue
        if lower == "anthropic-beta":
            # Flags of the client's own login mean nothing with another key.
            flags = [flag.strip() for flag in value.split(",")]
            value = ",".join(flag for flag in flags if flag and not flag.startswith("oauth-"))
            if not value:
                continue
        kept.append((name, value))
    return kept


def _credentials(upstream: Upstream, key: str, *, speaks_anthropic: bool) -> list[tuple[str, str]]:
    header = upstream.auth_header.lower()
    host = host_of(upstream.base_url)
    if not header and host == _ANTHROPIC_HOST:
        if speaks_anthropic:
            return [("x-api-key", key)]
        # Both of its dialects: the OpenAI-compatible one wants a bearer.
        return [
            ("x-api-key", key),
            ("authorization", f"Bearer {key}"),
            ("anthropic-version", _ANTHROPIC_VERSION),
        ]
    if not header and is_azure(host):
        header = "api-key"
    if header in ("", "authorization"):
        return [("authorization", f"Bearer {key}")]
    return [(header, key)]


def _read_key(upstream: Upstream, environ: Mapping[str, str]) -> _Key:
    if upstream.api_key_env:
        value = environ.get(upstream.api_key_env, "").strip()
        trouble = f"the environment variable {upstream.api_key_env} is not set"
    elif upstream.api_key_file:
        try:
            value = Path(upstream.api_key_file).expanduser().read_text("utf-8").strip()
            trouble = f"the key file {upstream.api_key_file} is empty"
        except (OSError, UnicodeDecodeError):
            value, trouble = "", f"the key file {upstream.api_key_file} cannot be read"
    else:
        return _Key()
    if not value:
        return _Key(trouble=trouble)
    if not value.isascii() or not value.isprintable():
        return _Key(trouble="its key holds characters that no header can carry")
    return _Key(value)


def _trouble(upstream: Upstream, key: _Key) -> str:
    """Why no key is not good enough; empty where none is needed."""
    if key.trouble:
        return key.trouble
    if upstream.engine is not None or _is_loopback(host_of(upstream.base_url)):
        return ""
    return "it has no api_key_env or api_key_file (engine: external says that none is needed)"


def _is_loopback(host: str) -> bool:
    if host in ("localhost", "") or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
