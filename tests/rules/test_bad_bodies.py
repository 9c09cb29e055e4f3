"""Everything that can be wrong with a body: a reason, never another exception, never a stall."""

from __future__ import annotations

import gzip
import time

import pytest

from rules.bodies.making import PATHS, READER
from turnout_rules.unreadable import Unreadable

GOOD = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
BAD = {
    "empty": (b"", "empty"),
    "white space": (b"  \n", "not JSON"),
    "not JSON": (b"hello", "not JSON"),
    "a form": (b"model=m&messages=x", "not JSON"),
    "a list": (b"[1,2]", "not a JSON object"),
    "a string": (b'"x"', "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "cut short": (GOOD[:-5], "broken JSON"),
    "trailing bytes": (GOOD + b" x", "broken JSON"),
    "two objects": (GOOD + GOOD, "broken JSON"),
    "NaN": (GOOD[:-1] + b',"temperature":NaN}', "broken JSON"),
    "Infinity": (GOOD[:-1] + b',"temperature":-Infinity}', "broken JSON"),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, "byte order mark"),
    "UTF-16": (GOOD.decode().encode("utf-16"), "not UTF-8"),
    "invalid UTF-8": (GOOD.replace(b"hi", b"h\xff"), "not UTF-8"),
    "encoded surrogate": (GOOD.replace(b"hi", b"\xed\xa0\x80"), "not UTF-8"),
    "a lone surrogate": (GOOD.replace(b"hi", rb"\ud800 is half"), "surrogate"),
    "a lone low surrogate": (GOOD.replace(b"hi", rb"\udc00 is half a pair"), "surrogate"),
    "a surrogate at the end": (GOOD.replace(b"hi", rb"\ud83d"), "surrogate|broken"),
    "control characters": (GOOD.replace(b"hi", b"h\x00i"), "broken JSON"),
    "no model": (b'{"messages":[]}', "no `model`"),
    "model null": (b'{"model":null,"messages":[]}', "`model` is not text"),
    "model a number": (b'{"model":5,"messages":[]}', "`model` is not text"),
    "model empty": (b'{"model":"","messages":[]}', "`model` is empty"),
    "model twice": (GOOD[:-1] + b',"model":"n"}', "duplicate key"),
    "model twice, equal": (GOOD[:-1] + b',"model":"m"}', "duplicate key"),
    "a key twice by escape": (GOOD[:-1] + rb',"mod\u0065l":"n"}', "duplicate key"),
    "messages twice": (GOOD[:-1] + b',"messages":[]}', "duplicate key"),
    "no messages": (b'{"model":"m"}', "no `messages`"),
    "messages a string": (b'{"model":"m","messages":"hi"}', "`messages` is not a list"),
    "messages null": (b'{"model":"m","messages":null}', "`messages` is not a list"),
    "messages an object": (b'{"model":"m","messages":{}}', "`messages` is not a list"),
    "messages of numbers": (b'{"model":"m","messages":[1]}', "not an object"),
    "a role of another type": (b'{"model":"m","messages":[{"role":5}]}', "role"),
    "content a number": (b'{"model":"m","messages":[{"role":"user","content":5}]}', "content"),
    "content of numbers": (b'{"model":"m","messages":[{"role":"user","content":[5]}]}', "content"),
    "text a list": (
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":[]}]}]}',
        "content",
    ),
    "stream a word": (GOOD[:-1] + b',"stream":"yes"}', "`stream`"),
    "deep lists": (b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
    "deep, never closed": (b"[" * 100_000, "."),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_body_is_unreadable_for_a_reason(case: str) -> None:
    body, reason = BAD[case]
    with pytest.raises(Unreadable, match=reason):
        READER.read(method="POST", path=PATHS["chat"], headers={}, body=body)


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("endpoint", ["completions", "responses", "messages", "embeddings"])
def test_no_endpoint_raises_anything_else(case: str, endpoint: str) -> None:
    body, _ = BAD[case]
    try:
        request = READER.read(method="POST", path=PATHS[endpoint], headers={}, body=body)
    except Unreadable:
        return
    assert request.needs is not None
    assert isinstance(request.bound, str)
    assert request.turn is not None
    for part in ("human", "system", "tools", "all"):
        assert isinstance(request.text_on(part), str)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","input":[5]}',
        b'{"model":"m","input":5}',
        b'{"model":"m","input":{"role":"user"}}',
    ],
)
def test_responses_input_of_wrong_types_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        READER.read(method="POST", path=PATHS["responses"], headers={}, body=body)


@pytest.mark.parametrize("prompt", [b"5", b"{}", b"null", b"[{}]", b'[["x"]]'])
def test_a_prompt_of_wrong_types_is_unreadable(prompt: bytes) -> None:
    body = b'{"model":"m","prompt":' + prompt + b"}"
    with pytest.raises(Unreadable, match="`prompt`"):
        READER.read(method="POST", path=PATHS["completions"], headers={}, body=body)


def test_fifty_megabytes_do_not_stall() -> None:
    body = GOOD.replace(b"hi", b"x" * 50_000_000)
    begun = time.perf_counter()
    request = READER.read(method="POST", path=PATHS["chat"], headers={}, body=body)
    assert len(request.text) == READER.reading.max_text_chars
    with pytest.raises(Unreadable, match="larger than"):
        READER.read(method="POST", path=PATHS["chat"], headers={}, body=body + b" " * 20_000_000)
    assert time.perf_counter() - begun < 5


def test_fifty_megabytes_of_brackets_and_tags_do_not_stall() -> None:
    text = b"<system-reminder><task>" * 200_000
    begun = time.perf_counter()
    READER.read(method="POST", path=PATHS["chat"], headers={}, body=GOOD.replace(b"hi", text))
    many = b'{"role":"user","content":""},' * 300_000
    READER.read(
        method="POST",
        path=PATHS["chat"],
        headers={},
        body=GOOD.replace(b"[", b"[" + many),
    )
    assert time.perf_counter() - begun < 10


def test_a_compressed_bomb_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="larger than"):
        READER.read(
            method="POST",
            path=PATHS["chat"],
            headers={"content-encoding": "gzip"},
            body=gzip.compress(b" " * 70_000_000, 1),
        )


def test_huge_numbers_are_no_trouble() -> None:
    body = GOOD[:-1] + b',"max_tokens":' + b"9" * 10_000 + b',"seed":1e999999}'
    request = READER.read(method="POST", path=PATHS["chat"], headers={}, body=body)
    assert request.output_tokens == 0
    assert request.needs == frozenset()


def test_reasons_hold_nothing_of_the_body() -> None:
    with pytest.raises(Unreadable) as caught:
        READER.read(
            method="POST",
            path=PATHS["chat"],
            headers={},
            body=b'{"model":"m","messages":["my secret words"]}',
        )
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value)
