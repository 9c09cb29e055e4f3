"""`turnout bench`: a table for people, rows for programs."""

from __future__ import annotations

import json

import pytest

from turnout_cli.main import main


def test_json_is_a_list_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--routes", "10,50", "--body-kb", "1,15", "--seconds", "0.01"]
    assert main(["bench", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["routes"], row["body_kb"]) for row in rows] == [
        (10, 1),
        (10, 15),
        (50, 1),
        (50, 15),
    ]
    assert all(row.keys() == {"routes", "body_kb", "p50_us", "p99_us"} for row in rows)
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in rows)


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--routes", "10", "--body-kb", "1", "--seconds", "0.01"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["routes", "body", "p50", "µs", "p99", "µs"]
    assert line.split()[:3] == ["10", "1", "KB"]


def test_agent_shaped_bodies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--agents", "--json", "--routes", "10", "--seconds", "0.01"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["Claude Code", "Codex zstd", "Codex large"]
    assert rows[1]["decode_p50_us"] > 0


def test_turns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--turns", "--json", "--routes", "10", "--seconds", "0.01"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == ["first of a turn", "follows its turn"]
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in rows)


def test_a_wrong_list_of_sizes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--routes", "ten"])
    assert "not a list of numbers" in capsys.readouterr().err
