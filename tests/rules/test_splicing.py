"""The splice: what is replaced, and that nothing else is."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout_rules.splicing import locate, splice, splice_one
from turnout_rules.unreadable import Unreadable

fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["model", "messages", "a", 'q"uote', "a\\b", "é", "", "{", ",:"])
BODIES = st.dictionaries(NAMES, VALUES, max_size=7)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (", ", ": ")},
        {"indent": 2},
        {"indent": "\t", "separators": (" ,", " : ")},
        {"ensure_ascii": False},
    ]
)


def replaced(body: dict[str, Any], changes: dict[str, Any], dropped: set[str]) -> dict[str, Any]:
    return {k: v for k, v in {**body, **changes}.items() if k not in dropped}


@settings(max_examples=400, deadline=None)
@given(
    body=BODIES, changes=st.dictionaries(NAMES, VALUES, max_size=4), style=STYLES, data=st.data()
)
def test_splice_then_parse_equals_parse_then_replace(
    body: dict[str, Any], changes: dict[str, Any], style: dict[str, Any], data: st.DataObject
) -> None:
    raw = json.dumps(body, **style).encode()
    present = [name for name in body if name not in changes]
    dropped = data.draw(st.sets(st.sampled_from(present)) if present else st.just(set()))
    wanted: dict[str, bytes | None] = {k: json.dumps(v).encode() for k, v in changes.items()}
    wanted |= dict.fromkeys(dropped)
    after = splice(raw, fields_of(raw), wanted)
    assert json.loads(after) == replaced(body, changes, dropped)


@settings(max_examples=300, deadline=None)
@given(body=BODIES, value=VALUES, style=STYLES, data=st.data())
def test_all_other_bytes_are_the_same(
    body: dict[str, Any], value: Any, style: dict[str, Any], data: st.DataObject
) -> None:
    if not body:
        return
    raw = json.dumps(body, **style).encode()
    name = data.draw(st.sampled_from(sorted(body)))
    fields = fields_of(raw)
    new = json.dumps(value).encode()
    _, start, end = locate(raw, fields)[list(fields).index(name)]
    after = splice(raw, fields, {name: new})
    assert after == raw[:start] + new + raw[end:]
    assert json.loads(raw[start:end]) == body[name]


@settings(max_examples=200, deadline=None)
@given(body=BODIES.filter(bool), value=VALUES, style=STYLES, data=st.data())
def test_one_value_is_replaced_as_by_the_general_splice(
    body: dict[str, Any], value: Any, style: dict[str, Any], data: st.DataObject
) -> None:
    raw = json.dumps(body, **style).encode()
    fields, new = fields_of(raw), json.dumps(value).encode()
    name = data.draw(st.sampled_from(list(body)))
    assert splice_one(raw, fields, name, new, locate(raw, fields)) == splice(
        raw, fields, {name: new}
    )


@given(body=BODIES, style=STYLES, data=st.data())
def test_a_duplicate_key_is_always_found(
    body: dict[str, Any], style: dict[str, Any], data: st.DataObject
) -> None:
    if not body:
        return
    raw = json.dumps(body, **style).encode()
    name = data.draw(st.sampled_from(sorted(body)))
    second = data.draw(st.sampled_from([json.dumps(body[name]), '"x"', "[1]", "{}", "12"]))
    twice = raw.rstrip()[:-1] + f",{json.dumps(name)}:{second}}}".encode()
    with pytest.raises(Unreadable, match="duplicate"):
        locate(twice, fields_of(twice))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":1}',
        b'{"a":"x,","b":1,"a":"x"}',
        b'{"a":12,"a":1}',
        b'{"a":1,"a":12}',
        b'{"a":{"a":1},"b":2,"a":{}}',
        rb'{"a":"\",\"b\":2","a":""}',
    ],
)
def test_duplicates_that_look_alike_are_found(raw: bytes) -> None:
    with pytest.raises(Unreadable, match="duplicate"):
        locate(raw, fields_of(raw))


def test_the_value_is_found_where_it_stands_and_not_in_a_prompt() -> None:
    raw = b'{"messages":[{"content":"\\"model\\": \\"gpt\\" {\\"model\\":1}"}], "model" : "gpt" }'
    after = splice(raw, fields_of(raw), {"model": b'"m"'})
    assert after == raw.replace(b': "gpt" }', b': "m" }')


def test_nested_duplicates_are_none_of_our_business() -> None:
    raw = b'{"a":{"x":1,"x":2},"b":[{"y":1,"y":1}]}'
    assert len(locate(raw, fields_of(raw))) == 2


def test_no_change_is_the_same_object() -> None:
    raw = b'{"a":1}'
    assert splice(raw, fields_of(raw), {}) is raw


@pytest.mark.parametrize(
    ("raw", "changes", "after"),
    [
        (b"{}", {"a": b"1"}, b'{"a":1}'),
        (b"{ }", {"a": b"1"}, b'{"a":1 }'),
        (b'{"a":1}', {"a": None}, b"{}"),
        (b'{ "a": 1, "b": 2, "c": 3 }', {"b": None}, b'{ "a": 1, "c": 3 }'),
        (b'{ "a": 1, "b": 2, "c": 3 }', {"a": None}, b'{ "b": 2, "c": 3 }'),
        (b'{ "a": 1, "b": 2, "c": 3 }', {"c": None}, b'{ "a": 1, "b": 2 }'),
        (b'{"a":1,"b":2}', {"a": None, "c": b"3"}, b'{"c":3,"b":2}'),
        (b'{"a":1,"b":2}', {"a": None, "b": None, "c": b"3"}, b'{"c":3}'),
        (b'{"a":1}', {"b": b"2"}, b'{"b":2,"a":1}'),
    ],
)
def test_fields_are_written_and_dropped_in_place(
    raw: bytes, changes: dict[str, bytes | None], after: bytes
) -> None:
    assert splice(raw, fields_of(raw), changes) == after


def test_a_large_body_is_walked_without_copies() -> None:
    raw = b'{"messages":"' + b"x" * 5_000_000 + b'","model":"m"}'
    after = splice(raw, fields_of(raw), {"model": b'"other"'})
    assert re.search(rb'","model":"other"}\Z', after)
    assert len(after) == len(raw) + 4
