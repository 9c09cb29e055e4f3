"""The decision log: lines, bounds, and a disk that cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

from turnout_rules.decision import Decision, Verdict
from turnout_sidecar.decision_log import DecisionLog

DECISION = Decision(
    route="code",
    target="one/a",
    layer="semantic",
    reason="r",
    verdict=Verdict(route="code", probability=0.9, threshold=0.5, runner_up="chat"),
)


def test_a_line_holds_text_decision_and_verdict(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "d" / "log.jsonl")
    log.record("写代码 \ud800", DECISION, version="v", source="gateway")
    log.close()
    row = json.loads((tmp_path / "d" / "log.jsonl").read_bytes())
    assert row["text"].startswith("写代码")
    assert (row["route"], row["layer"], row["verdict"]["runner_up"]) == ("code", "semantic", "chat")


def test_a_full_file_is_moved_aside_so_that_two_are_the_most(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = DecisionLog(path, max_bytes=2_000)
    for number in range(100):
        log.record(f"text {number}", DECISION, version="v", source="gateway")
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.jsonl", "log.jsonl.1"]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 5_000


def test_a_file_that_cannot_be_written_costs_lines_not_requests(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = DecisionLog(tmp_path / "file" / "log.jsonl")
    log.record("text", DECISION, version="v", source="gateway")
    log.close()
    assert log.dropped == 1
