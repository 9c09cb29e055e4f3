"""The decision log: lines, bounds, and a disk that cannot be written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from turnout_rules.decision import Decision, Verdict
from turnout_rules.decision_log import MAX_TEXT_CHARS, DecisionLog, decision_log_path
from turnout_rules.settings import Sidecar

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


def test_without_a_file_nothing_is_kept_and_the_file_may_change_any_time(tmp_path: Path) -> None:
    log = DecisionLog(None)
    log.record("one", DECISION, version="v", source="proxy")
    log.write_to(tmp_path / "log.jsonl")
    log.record("two" * MAX_TEXT_CHARS, DECISION, version="v", source="proxy")
    log.close()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["text"][:3], len(row["text"])) for row in rows] == [("two", MAX_TEXT_CHARS)]


WRITER = """
import sys
from pathlib import Path
from turnout_rules.decision import Decision
from turnout_rules.decision_log import DecisionLog
log = DecisionLog(Path(sys.argv[1]), max_bytes=20_000)
decision = Decision(route="r", target="pass", layer="default", reason="")
for number in range(int(sys.argv[3])):
    log.record(f"{sys.argv[2]} {number}", decision, version="v", source="proxy")
log.close()
assert not log.dropped
"""


def test_two_processes_share_a_file_and_lose_no_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    arguments = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*arguments, name, "500"]) for name in ("a", "b")]
    assert [writer.wait(30) for writer in writers] == [0, 0]
    lines = []
    for file in (tmp_path / "log.jsonl.1", path):
        assert file.stat().st_size < 20_400
        lines += [json.loads(line) for line in file.read_text().splitlines()]
    assert (tmp_path / "log.jsonl.1").stat().st_size >= 20_000
    for name in ("a", "b"):
        numbers = [int(row["text"][2:]) for row in lines if row["text"].startswith(name)]
        assert numbers == list(range(500 - len(numbers), 500))


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (Sidecar(), None),
        (Sidecar(decision_log="/var/log/t.jsonl"), "/var/log/t.jsonl"),
        (Sidecar(decision_log="t.jsonl", data_dir="/srv/data"), "/srv/data/t.jsonl"),
        (Sidecar(decision_log="t.jsonl"), "/env/data/t.jsonl"),
    ],
)
def test_a_relative_path_lies_in_the_data_folder(
    settings: Sidecar, path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_DATA_DIR", "/env/data")
    assert decision_log_path(settings) == (Path(path) if path else None)
