"""`turnout replay` on a rules folder and a recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnout_cli.main import main

RECORDED = Path(__file__).parents[1] / "data" / "recorded.jsonl"
RULES = """
routes:
  - name: everything
    match: [.*]
    target: local/small
upstreams:
  local:
    base_url: http://127.0.0.1:9/v1
    models:
      small: {model: small-1}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "routes.yaml").write_text(RULES)
    return tmp_path


def test_the_totals_say_what_moves_and_why_the_rest_stays(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(RECORDED), "--rules", str(rules)]) == 0
    out = capsys.readouterr().out
    assert "moved" in out
    assert "small" in out
    assert "pinned: encrypted reasoning" in out
    assert "passed: not an endpoint that is routed" in out


def test_json_holds_every_request_and_the_totals(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(RECORDED), "--rules", str(rules), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert len(output["requests"]) == 255
    assert output["totals"]["chat"]["outcomes"]["moved"] == 72
    moved = [one for one in output["requests"] if one["outcome"] == "moved"]
    assert all("model" in one["changed"] for one in moved)
    assert all(one["decision"]["target"] == "local/small" for one in moved)


def test_a_broken_line_fails(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text("{\n")
    assert main(["replay", str(file), "--rules", str(rules)]) == 1
    assert "not a recorded request" in capsys.readouterr().out


def test_a_missing_file_is_said_in_one_line(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "nowhere.jsonl", "--rules", str(rules)]) == 1
    assert capsys.readouterr().err.startswith("turnout replay: cannot read nowhere.jsonl")
