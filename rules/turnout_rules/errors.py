"""Errors as the client's own API words them: OpenAI's and Anthropic's error bodies and events."""

from __future__ import annotations

import json

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    431: "request_too_large",
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
    431: "invalid_request_error",
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


def error_event(
    endpoint: str, data: bytes, *, code: str, message: str, sequence_number: int = 0
) -> bytes:
    """An error as an event of the stream that the client of `endpoint` reads.

    `data` is an error body of one line; the Responses API has a shape of its own for events, made
    of `code` and `message`, and counts them: `sequence_number` is the stream's next. Starts with
    an empty line, so that it stands alone even behind half an event.
    """
    if endpoint == "messages":
        return b"\n\nevent: error\ndata: " + data + b"\n\n"
    if endpoint == "responses":
        event = {"type": "error", "code": code, "message": message, "param": None}
        numbered = {**event, "sequence_number": sequence_number}
        line = json.dumps(numbered, ensure_ascii=False).encode(errors="backslashreplace")
        return b"\n\nevent: error\ndata: " + line + b"\n\n"
    return b"\n\ndata: " + data + b"\n\n"
