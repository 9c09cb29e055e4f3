"""Events are found wherever the bytes are cut, also in streams that break the standard."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout_rules.sse import MAX_EVENT_BYTES, Event, Events, TooLong

STREAM = (
    '\ufeff: hello\r\n\r\nevent: ping\r\ndata: {"type":\r\ndata: "ping"}\r\n\r\n'
    'id: 7\nretry: 5\ndata:{"a":"翻译🙂"}\n\ndata: [DONE]\n\n'
).encode()
FOUND = [
    ("ping", {"type": "ping"}),
    ("", {"a": "翻译🙂"}),
    ("", None),
]


def read(pieces: list[bytes]) -> list[Event]:
    events = Events()
    found = [event for piece in pieces for event in events.feed(piece)]
    return [*found, *events.end()]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(edges)]
    assert [(e.name, e.value) for e in read(pieces)] == FOUND


def test_single_bytes_do_not_either() -> None:
    pieces = [STREAM[n : n + 1] for n in range(len(STREAM))]
    assert [(e.name, e.value) for e in read(pieces)] == FOUND


@pytest.mark.parametrize(
    ("stream", "values"),
    [
        (b'data: {"a":1}\ndata: {"b":2}\n', [{"a": 1}, {"b": 2}]),
        (b'data: {\ndata: "a": 1\ndata: }\n\n', [{"a": 1}]),
        (b'data: {"a":1}', [{"a": 1}]),
        (b'data: {"a":1}\r\rdata: {"b":2}\r\r', [{"a": 1}, {"b": 2}]),
        (b": only\n\n: comments\n\n", []),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_events_of_servers_that_leave_lines_out(stream: bytes, values: list[object]) -> None:
    assert [e.value for e in read([stream])] == values


def test_an_event_counts_before_its_empty_line_has_come() -> None:
    assert [e.value for e in Events().feed(b'data: {"a":1}\n')] == [{"a": 1}]


def test_the_error_field_of_an_older_llamacpp_is_an_event() -> None:
    (event,) = read([b'error: {"code":500,"message":"no"}\n\n'])
    assert (event.name, event.value) == ("error", {"code": 500, "message": "no"})


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"data: y\n" * 8_192])
def test_an_endless_event_is_given_up(piece: bytes) -> None:
    events = Events()
    with pytest.raises(TooLong):
        for _ in range(2 * MAX_EVENT_BYTES // len(piece)):
            list(events.feed(piece))


def test_deep_json_is_no_json() -> None:
    (event,) = read([b"data: " + b"[" * 100_000 + b"\n\n"])
    assert event.value is None
