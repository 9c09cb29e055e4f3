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


MODELS = """\
upstreams:
  api: {base_url: https://x/v1}
  v:
    engine: vllm
    models:
      gone: {model_path: ./models/qwen7b-int4}
      deep: {model_path: models/some/where}
      hub: {model_path: Qwen/Qwen2.5-7B-Instruct}
      empty: {model_path: EMPTY}
      here: {model_path: HERE}
  l:
    engine: llamacpp
    models:
      file: {model_path: /nowhere/tiny.gguf}
      stored: {model_path: smollm2}
      folder: {model_path: HERE}
      name: {model_path: no-such-model}
  c: {engine: command, models: {own: {command: [serve, "{port}"]}}}
"""


def test_models_that_are_not_here_are_warnings_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text("{}")
    upstreams = MODELS.replace("EMPTY", str(tmp_path / "empty"))
    upstreams = upstreams.replace("HERE", str(tmp_path / "here"))
    folder = write_folder(tmp_path / "rules", routes=GOOD, upstreams=upstreams)
    assert main(["check", str(folder)]) == 0
    lines = [each for each in capsys.readouterr().out.splitlines() if "cannot start here" in each]
    found = {each.split("`")[1]: each.removeprefix(f"{folder}/upstreams.yaml:") for each in lines}
    assert set(found) == {"v/gone", "v/deep", "v/empty", "l/file", "l/stored", "l/folder", "l/name"}
    assert found["v/gone"] == (
        "6:7: warning: `v/gone` cannot start here: there is no ./models/qwen7b-int4 in "
        f"{Path.cwd()}; put the model there, or set `model_path`"
    )
    assert "holds no model" in found["v/empty"]
    assert "is a folder" in found["l/folder"]
    assert found["l/stored"].endswith("turnout models pull")


def test_the_models_of_every_profile_are_named_until_they_are_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for profile, models in (("routing", 0), ("7b", 1), ("27b", 1), ("full", 2)):
        assert main(["init", str(tmp_path / profile), "--profile", profile]) == 0
        capsys.readouterr()
        assert main(["check", str(tmp_path / profile)]) == 0
        assert capsys.readouterr().out.count("cannot start here: there is no ./models/") == models


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
