"""Who may talk to the sidecar: browser protection and, off loopback, a token.

A page in the person's browser can reach loopback ports, and a name that an attacker owns can
resolve to one: so foreign `Host` and `Origin` headers are refused. It never looks into a body.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from turnout_rules.errors import error_body
from turnout_rules.web_origins import is_own_page

TOKEN_VARIABLE = "TURNOUT_SIDECAR_TOKEN"  # noqa: S105 - the variable's name, no token
TOKEN_HEADER = "x-turnout-token"  # noqa: S105
_OWN_SITES = ("none", "same-origin", "same-site")


class ListenRefused(Exception):
    """The listener of the settings is not allowed; the message says what to do."""


def check_listener(host: str, environ: Mapping[str, str]) -> str:
    """The token that callers must bring ("" on loopback); raises `ListenRefused`."""
    token = environ.get(TOKEN_VARIABLE, "")
    if not is_loopback(host) and not token:
        raise ListenRefused(
            f"sidecar.listen_host {host} can be reached from other machines: set {TOKEN_VARIABLE} "
            "to a secret that callers send, or listen on 127.0.0.1"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or address, without port) can only mean this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def guard(token: str) -> object:
    """The middleware. With a token any `Host` goes, for the token is what a browser lacks."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if refusal := _refusal(request, token):
            status, code, message = refusal
            endpoint = "messages" if request.path.endswith("/messages") else "chat"
            return web.Response(
                status=status,
                body=error_body(endpoint, status, message, code=code),
                content_type="application/json",
            )
        return await handler(request)

    return guarded


def _refusal(request: web.Request, token: str) -> tuple[int, str, str] | None:
    origins = request.headers.getall("origin", [])
    site = request.headers.get("sec-fetch-site", "none")
    if (origins and not is_own_page(origins)) or site not in _OWN_SITES:
        return 403, "foreign_origin", "requests from web pages of other sites are refused"
    if token:
        return None if _has_token(request, token) else (401, "token_required", _TOKEN_MESSAGE)
    if not is_unix(request) and not is_loopback(_hostname(request.headers.get("host", ""))):
        return 403, "foreign_host", "the Host header does not name this machine"
    return None


_TOKEN_MESSAGE = f"this sidecar demands its token: send it as {TOKEN_HEADER} or as a bearer token"


def is_unix(request: web.BaseRequest) -> bool:
    """Whether the request came through the Unix socket, which browsers cannot reach."""
    transport = request.transport
    name = transport.get_extra_info("sockname") if transport else None
    return isinstance(name, (str, bytes))


def _has_token(request: web.Request, token: str) -> bool:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = request.headers.get(TOKEN_HEADER) or (bearer if scheme.lower() == "bearer" else "")
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
