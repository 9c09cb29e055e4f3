"""Which answers let the next target be tried, and how failures reach a client."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from turnout_sidecar.failures import Failure, judge_answer, retry_after_seconds, sse_error

OVERFLOWS = [
    b'{"error":{"code":"context_length_exceeded","message":"..."}}',
    b'{"error":{"type":"exceed_context_size_error","message":"the request exceeds the available '
    b'context size, try increasing it"}}',
    b'{"message":"This model\'s maximum context length is 8192 tokens. However, you requested"}',
    b'{"type":"error","error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}',
]


@pytest.mark.parametrize("body", OVERFLOWS)
def test_a_context_overflow_lets_the_next_target_try_and_is_not_the_targets_fault(
    body: bytes,
) -> None:
    failure = judge_answer("a/m", 400, body, "application/json", None)
    assert failure is not None
    assert failure.kind == "context"
    assert failure.is_retryable
    assert not failure.is_targets_fault
    assert failure.body == body


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_other_client_errors_are_the_clients_to_see(status: int) -> None:
    assert judge_answer("a/m", status, b'{"error":{"message":"bad tool"}}', "", None) is None


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_overload_and_server_errors_let_the_next_target_try(status: int) -> None:
    failure = judge_answer("a/m", status, b"{}", "application/json", "3")
    assert failure is not None
    assert failure.status == status
    assert failure.retry_after_s == 3.0


def test_a_redirect_is_an_error_of_the_target() -> None:
    failure = judge_answer("a/m", 307, b"", "", None)
    assert failure is not None
    assert failure.status == 502


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("20", 20.0),
        ("0.5", 0.5),
        ("Tue, 01 Dec 2026 00:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 00:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
        (None, None),
        ("-5", None),
        ("1e999", 86_400.0),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, datetime(2026, 12, 1, tzinfo=UTC)) == seconds


def test_a_streams_error_speaks_the_clients_api() -> None:
    failure = Failure(kind="timeout", status=504, code="upstream_timeout", message="late\nvery")
    chat = sse_error("chat", failure, "r")
    assert json.loads(chat.strip().removeprefix(b"data: "))["error"]["code"] == "upstream_timeout"
    assert chat.strip().count(b"\n") == 0
    messages = sse_error("messages", failure, "r").strip().splitlines()
    assert messages[0] == b"event: error"
    assert json.loads(messages[1].removeprefix(b"data: "))["type"] == "error"
    responses = sse_error("responses", failure, None).strip().splitlines()
    assert json.loads(responses[1].removeprefix(b"data: "))["type"] == "error"


def test_an_upstreams_pretty_printed_error_becomes_one_line_of_the_stream() -> None:
    body = json.dumps({"error": {"message": "no"}}, indent=2).encode()
    failure = Failure(kind="500", status=500, code="upstream_error", message="m", body=body)
    line = sse_error("chat", failure, None).strip()
    assert b"\n" not in line
    assert json.loads(line.removeprefix(b"data: ")) == {"error": {"message": "no"}}
