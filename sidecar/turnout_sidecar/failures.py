"""What went wrong with an attempt, and what follows: pure judgements on statuses and bodies.

Says whether the next target may be tried, how long to stay away, and how the client is told, as an
HTTP answer or, once a stream has begun, as an SSE event. It sends nothing.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from turnout_rules.errors import error_body

_OVERFLOW = re.compile(
    rb"context_length_exceeded|exceed_context_size|exceeds? the (?:available )?(?:model'?s )?"
    rb"(?:maximum )?context|maximum (?:context|model) length|context (?:length|window|size) "
    rb"(?:is |was )?exceed|prompt is too long|max_model_len|input (?:is )?too long|too many tokens",
    re.IGNORECASE,
)
_OVERFLOW_STATUSES = (400, 413, 422)


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


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds of a `Retry-After` header (a number or an HTTP date); None if absent or nonsense."""
    if not value:
        return None
    value = value.strip()
    try:
        return max(0.0, min(float(value), 86_400.0)) if value[0].isdigit() else _until(value, now)
    except (ValueError, TypeError):
        return None


def sse_error(endpoint: str, failure: Failure, route: str | None) -> bytes:
    """An error as an event of the stream that the client of `endpoint` reads.

    Starts with an empty line, so that it stands alone even behind half an event.
    """
    data = _one_line(failure.payload(endpoint, route))
    if data is None:
        data = error_body(endpoint, failure.status, failure.message, code=failure.code, route=route)
    if endpoint == "messages":
        return b"\n\nevent: error\ndata: " + data + b"\n\n"
    if endpoint == "responses":
        event = {"type": "error", "code": failure.code, "message": failure.message, "param": None}
        line = json.dumps({**event, "sequence_number": 0}, ensure_ascii=False).encode()
        return b"\n\nevent: error\ndata: " + line + b"\n\n"
    return b"\n\ndata: " + data + b"\n\n"


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
