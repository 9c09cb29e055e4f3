"""`turnout test`: probes with a readable difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from language_folders import UPSTREAMS, write_folder
from turnout_cli.main import main

ROUTES = "routes:\n- {name: a, match: [code], target: api/m}\n"
PROBES = """\
probes:
- {text: my code, route: a, tags: [good]}
- {text: my text, route: a, tags: [bad]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path, routes=ROUTES, upstreams=UPSTREAMS, probes=PROBES)


def test_a_difference_is_shown_and_the_status_is_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"{folder}/probes.yaml:3:3: “my text”", "  - route: a", "  + route: none"]
    assert lines[-1].startswith("1 of 2 probes met in ")


def test_probes_are_chosen_by_tag(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--tag", "good", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("1 of 1 probes met")
    assert main(["test", "--tag", "ugly", str(folder)]) == 2
    assert "there is: bad, good" in capsys.readouterr().err


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--json", "--rules", str(folder)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [p["ok"] for p in report["probes"]] == [True, False]
    assert report["probes"][1]["wrong"] == [{"what": "route", "expected": "a", "found": "none"}]


def test_broken_rules_are_reported_as_check_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "routes.yaml").write_text("routes:\n- {name: a, target: x/y}\n")
    assert main(["test", str(folder)]) == 1
    assert "routes.yaml:2:21: error: unknown upstream `x`" in capsys.readouterr().err


@pytest.mark.local
def test_the_starter_probes_hold_with_the_real_classifier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["test", "--semantic", "--tag", "article", "--json", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(p["route"], p["layer"]) for p in report["probes"]] == [
        ("translation", "rule"),
        ("code", "rule"),
        ("summary", "semantic"),
        ("chat", "semantic"),
    ]
