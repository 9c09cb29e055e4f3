"""`turnout check`: file, line, column and remedy; exit status 1 on errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from language_folders import write_folder
from turnout_cli.main import main

GOOD = "routes:\n- {name: a, match: [code], target: api/m}\n"
API = "upstreams:\n  api: {base_url: https://x/v1}\n"


def test_a_good_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path, routes=GOOD, upstreams=API)
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().out == (f"{folder}: ok (2 files, 1 routes, 1 upstreams, 0 probes)\n")


def test_errors_have_their_place_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path, routes=GOOD.replace("api/m", "apy/m"), upstreams=API)
    assert main(["check", str(folder)]) == 1
    first, summary = capsys.readouterr().out.splitlines()
    assert first == (
        f"{folder}/routes.yaml:2:36: error: "
        "unknown upstream `apy` in `target: apy/m` of route `a`; "
        "did you mean `api`?"
    )
    assert summary == f"{folder}: 1 error (2 files, 1 routes, 1 upstreams, 0 probes)"


def test_warnings_alone_are_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path, routes=GOOD.replace("code", "c"), upstreams=API)
    assert main(["check", str(folder)]) == 0
    assert "warning: the keyword `c` is one letter" in capsys.readouterr().out


def test_a_key_that_is_not_set_is_a_warning_where_it_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_KEY", raising=False)
    upstreams = "upstreams:\n  api: {base_url: https://x/v1, api_key_env: NOT_SET_KEY}\n"
    upstreams += "  idle: {base_url: https://x/v1, api_key_env: NOT_SET_KEY}\n"
    folder = write_folder(tmp_path, routes=GOOD, upstreams=upstreams)
    assert main(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.count("NOT_SET_KEY is not set") == 1
    monkeypatch.setenv("NOT_SET_KEY", "x")
    assert main(["check", str(folder)]) == 0
    assert "NOT_SET_KEY" not in capsys.readouterr().out


def test_failing_probes_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probes = "probes:\n- {text: my code, target: pass}\n"
    folder = write_folder(tmp_path, routes=GOOD, upstreams=API, probes=probes)
    assert main(["check", str(folder)]) == 1
    assert "probes.yaml:2:3: error: probe “my code”" in capsys.readouterr().out


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path, routes=GOOD.replace("target", "tagret"), upstreams=API)
    assert main(["check", "--json", str(folder)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False and report["routes"] == 1
    assert {"file", "line", "column", "severity", "code", "message", "remedy"} == set(
        report["problems"][0]
    )


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Turnout rule file"


def test_a_missing_folder_says_how_to_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "none")]) == 1
    assert "turnout init" in capsys.readouterr().out
