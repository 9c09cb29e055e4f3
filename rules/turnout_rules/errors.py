"""Errors as the client's own API words them: OpenAI's and Anthropic's error bodies."""

from __future__ import annotations

import json

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    426: "invalid_request_error",
    429: "rate_limit_error",
}


def error_body(
    endpoint: str, status: int, message: str, *, code: str, route: str | None = None
) -> bytes:
    """The JSON error body for a client of `endpoint` (`messages` speaks Anthropic's format).

    `code` is a stable snake_case name (`queue_full`, `route_blocked`); `route` names the rule that
    refused, under the key `turnout`, which both formats' clients ignore.
    """
    hint = {"code": code, "route": route}
    if endpoint == "messages":
        kind = _ANTHROPIC_TYPES.get(status, "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}, "turnout": hint}
    else:
        kind = _OPENAI_TYPES.get(status, "server_error")
        error = {"message": message, "type": kind, "param": None, "code": code}
        body = {"error": error, "turnout": hint}
    # A message may quote bytes of a client's header that were no UTF-8.
    return json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")
