"""What counts as an answer where it is no text of a model: sounds, transcripts, ranks, pictures."""

from __future__ import annotations

import pytest

from turnout_rules.answers import Answer

GOOD = [
    ("speech", "audio/mpeg", b"ID3\x04" + bytes(64)),
    ("transcriptions", "text/plain", b"hello there"),
    ("transcriptions", "application/json", b'{"text": ""}'),
    ("rerank", "application/json", b'{"results": []}'),
    (
        "transcriptions",
        "text/event-stream",
        b'data: {"type": "transcript.text.delta", "delta": "hel"}\n\n',
    ),
]


@pytest.mark.parametrize(("endpoint", "kind", "body"), GOOD)
def test_it_is_an_answer_and_nothing_is_missed_behind_it(
    endpoint: str, kind: str, body: bytes
) -> None:
    answer = Answer(endpoint, content_type=kind)
    answer.feed(body)
    answer.end()
    assert answer.is_good
    assert answer.flaw is None
    assert not answer.is_cut


@pytest.mark.parametrize("body", [b"", b'{"error": {"message": "no"}}'])
def test_nothing_at_all_and_an_error_are_none(body: bytes) -> None:
    answer = Answer("transcriptions", content_type="application/json")
    answer.feed(body)
    answer.end()
    assert not answer.is_good
    assert answer.flaw is not None
