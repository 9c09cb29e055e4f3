"""Deadlines of connections, and errors that API clients can read."""

from __future__ import annotations

import asyncio
import json

import pytest
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.test import tflow

from turnout_addon.connecting import ConnectDeadlines, error_body, speak_json


async def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    deadlines = ConnectDeadlines(0.05)
    server = tflow.tflow().server_conn

    async def dial() -> None:
        deadlines.begin(server)
        await asyncio.sleep(30)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(dial())


async def test_one_that_is_made_is_left_alone() -> None:
    deadlines = ConnectDeadlines(0.02)
    server = tflow.tflow().server_conn

    async def dial() -> str:
        deadlines.begin(server)
        deadlines.end(server)
        await asyncio.sleep(0.1)
        return "served"

    assert await asyncio.create_task(dial()) == "served"
    deadlines.end(server)  # a second word changes nothing


def test_errors_are_json_in_both_protocols() -> None:
    speak_json()
    speak_json()
    head, _, body = _http1.make_error_response(502, "Connection refused").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502")
    assert b"content-type: application/json" in head.lower()
    assert json.loads(body)["error"]["message"] == "turnout: Connection refused"
    assert _http2.format_error(502, "x") == error_body(502, "x")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "message", "kind", "code"),
    [
        (502, "connection cancelled", "api_error", "upstream_unreachable"),
        (400, "Invalid header", "invalid_request_error", "bad_exchange"),
    ],
)
def test_both_apis_clients_find_their_fields(
    status: int, message: str, kind: str, code: str
) -> None:
    body = json.loads(error_body(status, message))
    assert body["type"] == "error"
    assert body["error"]["type"] == kind
    assert body["error"]["code"] == code
    assert "cancelled" not in body["error"]["message"]
