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
        Entry("my key is sk-abcdefgh12345678", "default"),
        Entry("write to jane@example.org", "default"),
    ]
    assert undecided(entries) == [("Book a flight", 2)]


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
