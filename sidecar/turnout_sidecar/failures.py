"""What went wrong with an attempt, and what follows: pure judgements on statuses and bodies.

Says whether the next target may be tried, how long to stay away, and how the client is told, as an
HTTP answer or, once a stream has begun, as an SSE event. It sends nothing.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from turnout_rules.answers import Flaw
from turnout_rules.errors import error_body, error_event

_OVERFLOW = re.compile(
    rb"context_length_exceeded|exceed_context_size|exceeds? the (?:available )?(?:model'?s )?"
    rb"(?:maximum )?context|maximum (?:context|model) length|context (?:length|window|size) "
    rb"(?:is |was )?exceed|prompt is too long|max_model_len|input (?:is )?too long|too many tokens",
    re.IGNORECASE,
)
_OVERFLOW_STATUSES = (400, 413, 422)
_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "resource_exhausted": 429,
    "overloaded_error": 529,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "unavailable": 503,
    "api_error": 500,
    "server_error": 500,
    "internal": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "deadline_exceeded": 504,
}
"""Error types and codes that Anthropic, OpenAI, Codex and Google name, and the status of each."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attempt did not end in an answer, and what the client is told if it was the last."""

    kind: str
    """For headers and metrics: `connect`, `timeout`, `broken`, `429`, `context`, `resting`, …"""
    status: int
    code: str
    message: str
    is_retryable: bool = True
    """Whether another target may be tried."""
    is_targets_fault: bool = True
    """Whether it counts towards a rest."""
    retry_after_s: float | None = None
    queue_position: int | None = None
    body: bytes | None = None
    """The upstream's own error body; None: ours is made from `code` and `message`."""
    content_type: str = "application/json"

    def payload(self, endpoint: str, route: str | None) -> bytes:
        """The body of the error answer in the format of the client's API."""
        if self.body is not None:
            return self.body
        return error_body(endpoint, self.status, self.message, code=self.code, route=route)


def judge_answer(
    target: str,
    status: int,
    body: bytes,
    content_type: str,
    retry_after: str | None,
    now: datetime | None = None,
) -> Failure | None:
    """The failure an upstream's error answer stands for; None: it is the client's to see as is."""
    wait_s = retry_after_seconds(retry_after, now)
    told = {"body": body or None, "content_type": content_type or "application/json"}
    if status == 429 or status >= 500:
        return Failure(
            kind=str(status),
            status=status,
            code="upstream_error",
            message=f"{target} answered {status}",
            retry_after_s=wait_s,
            **told,  # type: ignore[arg-type]
        )
    if 300 <= status < 400:
        return Failure(
            kind=str(status),
            status=502,
            code="upstream_redirect",
            message=f"{target} answered with a redirect, which is not followed",
            is_targets_fault=False,
        )
    if status in _OVERFLOW_STATUSES and _OVERFLOW.search(body):
        return Failure(
            kind="context",
            status=status,
            code="context_length_exceeded",
            message=f"the request does not fit into the context of {target}",
            is_targets_fault=False,
            **told,  # type: ignore[arg-type]
        )
    return None


def judge_nothing(target: str, flaw: Flaw, retry_after: str | None) -> Failure:
    """The failure that an answer of status 200 without any content stands for."""
    if flaw.kind == "error":
        return _told_in_200(target, flaw.error, retry_after)
    said = "nothing" if flaw.kind == "empty" else "something that is no JSON"
    return Failure(
        kind=flaw.kind,
        status=502,
        code=f"upstream_{flaw.kind}",
        message=f"{target} answered 200 and sent {said}",
    )


def _told_in_200(target: str, error: Any, retry_after: str | None) -> Failure:
    """An error object in the place of an answer; judged as if its status had been the answer's."""
    status = _status_of(error)
    body = _as_body(error)
    if _OVERFLOW.search(body):
        return Failure(
            kind="context",
            status=status,
            code="context_length_exceeded",
            message=f"the request does not fit into the context of {target}",
            is_targets_fault=False,
            body=body,
        )
    return Failure(
        kind="error",
        status=status,
        code="upstream_error",
        message=f"{target} answered 200 and sent an error",
        is_targets_fault=status not in _OVERFLOW_STATUSES,
        retry_after_s=retry_after_seconds(retry_after),
        body=body,
    )


def _as_body(error: Any) -> bytes:
    """The upstream's own words as an error body that OpenAI's and Anthropic's clients read."""
    told = error if isinstance(error, dict) else {"message": str(error)}
    whole = told if isinstance(told.get("error"), dict) else {"type": "error", "error": told}
    return json.dumps(whole, ensure_ascii=False).encode(errors="backslashreplace")


def _status_of(error: Any) -> int:
    """The HTTP status that an error object names by number or by its type; 502 if by neither."""
    if not isinstance(error, dict):
        return 502
    if isinstance(inner := error.get("error"), dict):
        error = inner
    for key in ("status", "status_code", "code", "type"):
        value = str(error.get(key)).lower()
        if len(value) == 3 and value.isdecimal() and 400 <= int(value) < 600:
            return int(value)
        if status := _STATUSES.get(value):
            return status
    return 502


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds of a `Retry-After` header (a number or an HTTP date); None if absent or nonsense."""
    if not value:
        return None
    value = value.strip()
    try:
        return max(0.0, min(float(value), 86_400.0)) if value[0].isdigit() else _until(value, now)
    except (ValueError, TypeError):
        return None


def sse_error(
    endpoint: str, failure: Failure, route: str | None, sequence_number: int = 0
) -> bytes:
    """The failure as an event of the client's stream; `sequence_number` is the stream's next."""
    data = _one_line(failure.payload(endpoint, route))
    if data is None:
        data = error_body(endpoint, failure.status, failure.message, code=failure.code, route=route)
    return error_event(
        endpoint,
        data,
        code=failure.code,
        message=_upstreams_words(data) or failure.message,
        sequence_number=sequence_number,
    )


def _upstreams_words(body: bytes) -> str:
    error = json.loads(body)["error"]
    words = error.get("message") if isinstance(error, dict) else error
    return words if isinstance(words, str) else ""


def _until(value: str, now: datetime | None) -> float:
    moment = parsedate_to_datetime(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, min((moment - (now or datetime.now(UTC))).total_seconds(), 86_400.0))


def _one_line(body: bytes) -> bytes | None:
    """A JSON object without line breaks; None for anything that is no object with an error."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "error" not in value:
        return None
    return json.dumps(value, ensure_ascii=False).encode()
