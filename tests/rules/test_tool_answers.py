"""Answers on their way back: calls become what the client declared, all else keeps its bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout_rules import tool_answers
from turnout_rules.tool_answers import CallTurner, call_turner
from turnout_rules.tool_inputs import as_arguments
from turnout_rules.tool_names import Calls, Tool

EXEC = Tool("custom", "functions", "exec")
SLEEP = Tool("function", "clock", "sleep")
OWN = Tool("custom", "", "sql")
SEARCH = Tool("search", "", "tool_search")
CALLS = Calls(
    [EXEC, SLEEP, OWN, SEARCH, Tool("function", "", "plain")],
    folds_namespaces=True,
    folds_custom=True,
)
TEXT = 'say "ü" 🙂\n\t\\path'


def turned(endpoint: str = "responses", kind: str = "text/event-stream") -> CallTurner:
    found = call_turner(CALLS, endpoint, 200, kind)
    assert found is not None
    return found


def whole(data: bytes, endpoint: str = "responses", kind: str = "application/json") -> Any:
    it = turned(endpoint, kind)
    assert it.feed(data) == b""
    return json.loads(it.end())


def passed(chunks: Iterable[bytes], endpoint: str = "responses") -> bytes:
    it = turned(endpoint)
    return b"".join([*(it.feed(chunk) for chunk in chunks), it.end()])


def item(name: str, arguments: str, number: int = 1) -> dict[str, Any]:
    head = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    return {**head, "name": name, "arguments": arguments, "status": "completed"}


MESSAGE = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "ü"}]}
ITEMS = [
    MESSAGE,
    item("functions__exec", as_arguments(TEXT), 1),
    item("clock__sleep", '{"ms":1}', 2),
    item("plain", '{"a": 1.0}', 3),
    item("sql", as_arguments("select 1"), 4),
    item("tool_search", '{"query": "rain"}', 5),
]
TURNED = [
    MESSAGE,
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_1",
        "name": "exec",
        "namespace": "functions",
        "input": TEXT,
        "status": "completed",
    },
    {**item("sleep", '{"ms":1}', 2), "namespace": "clock"},
    item("plain", '{"a": 1.0}', 3),
    {
        "type": "custom_tool_call",
        "id": "ctc_4",
        "call_id": "call_4",
        "name": "sql",
        "input": "select 1",
        "status": "completed",
    },
    {
        "type": "tool_search_call",
        "id": "tsc_5",
        "call_id": "call_5",
        "status": "completed",
        "execution": "client",
        "arguments": {"query": "rain"},
    },
]


def event(kind: str, number: int, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": number, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def stream(pieces: int = 4, *, ids: bool = True, indexes: bool = True) -> Iterator[bytes]:
    """A stream with `ITEMS`, as servers send it; they name an item by id, by index or by both."""
    number = iter(range(1_000))
    yield event("response.created", next(number), response={"id": "r", "output": []})
    yield b": keep-alive\r\n\r\n"
    for at, each in enumerate(ITEMS):
        index = {"output_index": at} if indexes else {}
        place = index | ({"item_id": each["id"]} if ids else {})
        begun = {**each, "arguments": ""} if "arguments" in each else each
        yield event("response.output_item.added", next(number), **index, item=begun)
        for start in range(0, len(each.get("arguments", "")), pieces):
            delta = each["arguments"][start : start + pieces]
            yield event(
                "response.function_call_arguments.delta", next(number), **place, delta=delta
            )
        if "arguments" in each:
            done = {**place, "arguments": each["arguments"], "name": each["name"]}
            yield event("response.function_call_arguments.done", next(number), **done)
        yield event("response.output_item.done", next(number), **index, item=each)
    response = {"id": "r", "output": ITEMS, "usage": {"cost": 1.50}}
    yield event("response.completed", next(number), response=response)
    yield b"data: [DONE]\n\n"


def events(data: bytes) -> list[dict[str, Any]]:
    rows = [row for row in data.decode().split("\n") if row.startswith("data: {")]
    return [json.loads(row.removeprefix("data: ")) for row in rows]


def test_a_whole_response_is_turned_back() -> None:
    body = {"id": "r", "output": ITEMS, "usage": {"total_tokens": 2}}
    assert whole(json.dumps(body).encode()) == {**body, "output": TURNED}


def test_a_response_without_such_calls_keeps_its_bytes() -> None:
    data = json.dumps({"output": [MESSAGE, ITEMS[3]], "n": 1.50}, indent=1).encode()
    it = turned(kind="application/json; charset=utf-8")
    assert it.feed(data[:10]) + it.feed(data[10:]) + it.end() == data


@pytest.mark.parametrize(("ids", "indexes"), [(True, True), (True, False), (False, True)])
def test_a_stream_is_turned_back_event_by_event(ids: bool, indexes: bool) -> None:
    sent = list(stream(ids=ids, indexes=indexes))
    got = passed(sent)
    before, after = events(b"".join(sent)), events(got)
    assert [e["sequence_number"] for e in after] == list(range(len(before)))
    done = [e["item"] for e in after if e["type"] == "response.output_item.done"]
    assert done == TURNED
    assert after[-1]["response"]["output"] == TURNED
    for number, wanted in ((1, TEXT), (4, "select 1")):
        mine = [
            e
            for e in after
            if e.get("item_id") == f"ctc_{number}" or (not ids and e.get("output_index") == number)
        ]
        deltas = [e for e in mine if e["type"] == "response.custom_tool_call_input.delta"]
        assert "".join(e["delta"] for e in deltas) == wanted
        (end,) = [e for e in mine if e["type"] == "response.custom_tool_call_input.done"]
        assert end["input"] == wanted
        assert not {"arguments", "name"} & end.keys()
    named = [e["name"] for e in after if e["type"] == "response.function_call_arguments.done"]
    assert named == ["sleep", "plain", "tool_search"]
    for data in got.split(b"\n\n"):
        if data.startswith(b"event: "):
            head, _, rest = data.partition(b"\n")
            kind = json.loads(rest.removeprefix(b"data: "))["type"]
            assert head == f"event: {kind}".encode()


def test_everything_else_in_a_stream_keeps_its_bytes() -> None:
    sent = list(stream())
    changed = (b"functions__exec", b"clock__sleep", b"sql", b"fc_1", b"fc_4", b"fc_5")
    untouched = [data for data in sent if not any(mark in data for mark in changed)]
    got = passed(sent)
    assert len(untouched) > 10
    for data in untouched:
        assert data in got
    other = (
        b'event: x\r\ndata: {"function_call": 1}\r\ndata: }\r\n\r\nid: 5\ndata: function_call\n\n'
    )
    assert passed([other]) == other


def test_no_event_waits_for_the_next() -> None:
    it = turned()
    for data in stream():
        assert it.feed(data) != b""
    assert it.end() == b""


def test_a_stream_cut_at_every_byte_is_the_same() -> None:
    data = b"".join(stream(pieces=9))
    wanted = passed([data])
    assert passed(data[at : at + 1] for at in range(len(data))) == wanted
    for cut in range(1, len(data), 7):
        assert passed([data[:cut], data[cut:]]) == wanted


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.text(), st.integers(1, 6))
def test_a_stream_in_random_pieces_gives_the_input(seed: int, text: str, pieces: int) -> None:
    arguments = as_arguments(text)
    each = item("functions__exec", arguments)
    place = {"output_index": 0, "item_id": "fc_1"}
    sent = [event("response.output_item.added", 0, output_index=0, item={**each, "arguments": ""})]
    for number, start in enumerate(range(0, len(arguments), pieces), 1):
        delta = arguments[start : start + pieces]
        sent.append(event("response.function_call_arguments.delta", number, **place, delta=delta))
    data = b"".join(sent)
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(len(data)), min(20, len(data))))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    got = events(passed(chunks))
    assert "".join(e["delta"] for e in got[1:]) == text
    assert got[0]["item"]["input"] == ""


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
def test_line_endings_are_the_streams_own(ending: str) -> None:
    data = b"".join(stream()).replace(b"\r\n", b"\n").decode().replace("\n", ending).encode()
    got = passed(data[at : at + 5] for at in range(0, len(data), 5))
    assert got.decode().replace(ending, "\n").encode() == passed(
        [b"".join(stream()).replace(b"\r\n", b"\n")]
    )


def test_data_on_several_lines_is_one_value() -> None:
    data = json.dumps({"type": "response.output_item.done", "item": ITEMS[1]}, indent=1)
    sent = "".join(f"data: {line}\n" for line in data.split("\n")) + "id: 7\n\n"
    got = passed([sent.encode()]).decode()
    assert got.endswith("}\nid: 7\n\n")
    assert json.loads(got.partition("\n")[0].removeprefix("data: "))["item"] == TURNED[1]


def test_a_stream_that_breaks_off_keeps_what_has_come() -> None:
    data = event("response.output_item.done", 1, item=ITEMS[1])
    assert passed([data[:-2]]) == data[:-2]


def test_what_is_too_long_to_hold_passes_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_answers, "MAX_BYTES", 1_000)
    long = event("response.output_text.delta", 1, delta="x" * 3_000 + " function_call")
    it = turned()
    out = b""
    for at in range(0, len(long), 100):
        out += it.feed(long[at : at + 100])
        assert at - len(out) <= 1_000
    assert out == long
    after = it.feed(event("response.output_item.done", 2, item=ITEMS[1]))
    assert events(after)[0]["item"] == TURNED[1]
    body = json.dumps({"output": ITEMS, "x": "y" * 2_000}).encode()
    it = turned(kind="application/json")
    assert it.feed(body[:1_500]) + it.feed(body[1_500:]) + it.end() == body


@pytest.mark.parametrize(
    ("status", "kind", "encoding"),
    [
        (400, "application/json", ""),
        (200, "text/plain", ""),
        (200, "", ""),
        (200, "application/json", "gzip"),
    ],
)
def test_answers_without_calls_are_not_touched(status: int, kind: str, encoding: str) -> None:
    assert call_turner(CALLS, "responses", status, kind, encoding) is None


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b"[]",
        b'{"output": 5}',
        b'{"output": [5]}',
        b'{"output": [{"type": "function_call"}]}',
        b'{"output": [{"type": "function_call", "name": {"a": 1}}]}',
        b'{"output": [{"type": "function_call", "name": "nobody", "arguments": "{}"}]}',
    ],
)
def test_odd_answers_pass_as_they_came(data: bytes) -> None:
    for endpoint in ("responses", "chat"):
        it = turned(endpoint, "application/json")
        assert it.feed(data) + it.end() == data
        one = b"data: " + data.replace(b"\n", b"") + b' "function_call tool_calls"\n\n'
        assert passed([one], endpoint) == one


CHAT_CALL = {"id": "1", "type": "function"}


def chat_call(name: str, arguments: str) -> dict[str, Any]:
    return {**CHAT_CALL, "function": {"name": name, "arguments": arguments}}


def chat_answer(part: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, part: {"tool_calls": list(calls)}}]}


def test_a_chat_completion_is_turned_back() -> None:
    plain = chat_call("plain", "{}")
    body = chat_answer("message", chat_call("sql", as_arguments(TEXT)), plain)
    got = whole(json.dumps(body).encode(), "chat")
    custom = {"id": "1", "type": "custom", "custom": {"name": "sql", "input": TEXT}}
    assert got == chat_answer("message", custom, plain)


@pytest.mark.parametrize("pieces", [1, 3, 1_000])
def test_a_chat_stream_is_turned_back(pieces: int) -> None:
    arguments = as_arguments(TEXT)
    rows = [
        chat_answer("delta", {"index": 0, **chat_call("sql", "")}),
        chat_answer("delta", {"index": 1, **chat_call("plain", "")}),
        chat_answer("delta", {"index": 1, "function": {"arguments": '{"input":"no"}'}}),
        *(
            chat_answer(
                "delta", {"index": 0, "function": {"arguments": arguments[at : at + pieces]}}
            )
            for at in range(0, len(arguments), pieces)
        ),
        {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    data = b"".join(f"data: {json.dumps(row)}\n\n".encode() for row in rows) + b"data: [DONE]\n\n"
    got = passed((data[at : at + 11] for at in range(0, len(data), 11)), "chat")
    assert got.endswith(b"data: [DONE]\n\n")
    after = events(got)
    assert after[1:3] == rows[1:3]
    assert after[-1] == rows[-1]
    first = after[0]["choices"][0]["delta"]["tool_calls"][0]
    assert first == {
        "index": 0,
        "id": "1",
        "type": "custom",
        "custom": {"name": "sql", "input": ""},
    }
    later = [e["choices"][0]["delta"]["tool_calls"][0] for e in after[3:-1]]
    assert "".join(call["custom"]["input"] for call in later) == TEXT
