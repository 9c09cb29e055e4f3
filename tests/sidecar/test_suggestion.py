"""What the decision log teaches, and what it must not repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from turnout_sidecar.suggestion import Entry, clusters, patch, read_log, undecided


def test_only_what_the_default_route_took_counts_and_secrets_are_left_out() -> None:
    entries = [
        Entry("Book a flight", "default"),
        Entry("book  a flight", "default"),
        Entry("fix my code", "rule"),
        Entry("unreadable for a rule by name", "pass", "kept"),
        Entry("no default route", "pass"),
        Entry("my key is sk-abcdefgh12345678", "default"),
        Entry("write to jane@example.org", "default"),
    ]
    assert undecided(entries) == [("Book a flight", 2), ("no default route", 1)]


def test_torn_lines_of_the_log_are_skipped(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"text": "a", "layer": "default"}\n{"text": "b", "lay\n\xff\n[]\n')
    assert [entry.text for entry in read_log(log)] == ["a"]


def test_like_texts_become_a_patch_that_is_yaml() -> None:
    texts = [(f'book a "flight" to city {i}', 1) for i in range(5)]
    texts += [(f"wie wird das wetter: {i} #", 1) for i in range(4)] + [("something else", 1)]
    axes = [0] * 5 + [1] * 4 + [2]
    vectors = np.eye(8, dtype=np.float32)[axes]
    found = clusters(texts, vectors)
    assert [c.size for c in found] == [5, 4]
    assert "flight" in found[0].keywords
    routes = yaml.safe_load(patch(found, "api/any"))["routes"]
    assert routes[0]["examples"][0] == 'book a "flight" to city 0'
    assert len(routes) == 2


def test_an_empty_log_proposes_nothing() -> None:
    assert clusters([], np.zeros((0, 8), np.float32)) == []


def test_repetitions_of_one_text_are_no_group() -> None:
    vectors = np.eye(4, dtype=np.float32)[[0, 1, 1, 1]]
    texts = [("again and again", 9), ("one cat", 1), ("two cats", 2), ("three cats", 1)]
    found = clusters(texts, vectors, min_size=3)
    assert [(len(c.texts), c.size) for c in found] == [(3, 4)]


def test_chinese_keywords_are_whole_words() -> None:
    poems = [
        "写一首关于春天的诗",
        "帮我写一首关于大海的诗",
        "写一首关于月亮的现代诗",
        "写首关于爱情的诗",
    ]
    weather = ["今天北京天气怎么样", "明天上海的天气如何", "周末天气好不好"]
    vectors = np.eye(4, dtype=np.float32)[[0] * 4 + [1] * 3]
    found = clusters([(text, 1) for text in poems + weather], vectors)
    assert [c.keywords for c in found] == [("写一首关于",), ("天气",)]
