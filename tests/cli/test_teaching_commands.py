"""models, eval, suggest and calibrate as a person types them."""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path

import pytest

from sidecar.classifier_tables import ENGLISH, fetched_models
from turnout_cli.main import main

__all__ = ["fetched_models"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    lines = ["upstreams:", "  api: {base_url: 'http://127.0.0.1:9/v1'}", "routes:"]
    for name, texts in ENGLISH.items():
        lines += [f"  - name: {name}  # {name}", f"    target: api/{name}", "    examples:"]
        lines += [f"      - {json.dumps(text)}" for text in texts]
    lines += ["  - {name: fallback, match: ['.*'], target: api/any}"]
    (folder / "routes.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    lines = [
        {"text": f"{text} please", "route": name}
        for name, texts in ENGLISH.items()
        for text in texts
    ]
    lines += [{"text": "qwerty asdf zxcv", "route": "fallback"}] * 2
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return file


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_eval_prints_the_agreed_keys_and_writes_a_page(
    rules: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert main(["eval", str(rows), "--rules", str(rules), "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    keys = "accuracy in_scope_accuracy oos_auroc coverage_at_95 ece p50_ms p99_ms"
    assert set(keys.split()) <= set(found)
    assert found["in_scope_accuracy"] >= 0.9
    assert "<svg" in page.read_text(encoding="utf-8")


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_calibrate_shows_with_dry_run_and_writes_without(
    rules: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (rules / "routes.yaml").read_text(encoding="utf-8")
    share = ["--share", "api/code=5"]
    assert main(["calibrate", str(rows), "--rules", str(rules), *share, "--dry-run"]) == 0
    assert (rules / "routes.yaml").read_text(encoding="utf-8") == before
    assert main(["calibrate", str(rows), "--rules", str(rules), *share]) == 0
    after = (rules / "routes.yaml").read_text(encoding="utf-8")
    assert after.count("threshold:") == 1 and "# code" in after
    assert main(["calibrate", str(rows), "--rules", str(rules), "--share", "api/none=5"]) == 2


def test_eval_names_the_line_it_cannot_use(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "x", "route": "poetry"}', encoding="utf-8")
    assert main(["eval", str(file), "--rules", str(rules)]) == 1
    assert "rows.jsonl:1:" in capsys.readouterr().err


def test_suggest_without_a_log_says_how_to_get_one(
    rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suggest", "--rules", str(rules)]) == 1
    assert "set sidecar.decision_log" in capsys.readouterr().err


def test_suggest_says_when_a_log_is_missing_or_none(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    assert main(["suggest", str(log), "--rules", str(rules)]) == 1
    assert f"no decision log at {log}" in capsys.readouterr().err
    log.write_text("PK\x03\x04 no log\n")
    assert main(["suggest", str(log), "--rules", str(rules)]) == 1
    assert "has no line of a decision log" in capsys.readouterr().err


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_suggest_proposes_routes_for_the_default_s_traffic(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    texts = ["book a flight to Rome", "book a flight to Oslo", "I want to book a flight to Paris"]
    log.write_text(
        "\n".join(json.dumps({"text": t, "layer": "default"}) for t in texts), encoding="utf-8"
    )
    assert main(["suggest", str(log), "--rules", str(rules)]) == 0
    out = capsys.readouterr().out
    assert "routes:" in out and "flight" in out


def test_models_list_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNOUT_CACHE_DIR", str(tmp_path))
    assert main(["models", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["state"] for row in rows} == {
        "smollm2": "missing",
        "sentence-encoder": "missing",
    }
    assert main(["models", "pull", "gpt-7"]) == 2


@pytest.mark.parametrize("line", ['{"text": "hi"}', '{"text": "hi", "route": 3}', '["hi"]'])
def test_a_labelled_line_without_its_label_is_named(
    line: str, rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"text": "a", "route": null}}\n{line}\n')
    assert main(["eval", str(file), "--rules", str(rules)]) == 1
    assert f"{file}:2: " in capsys.readouterr().err


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_eval_survives_byte_order_marks_half_surrogates_and_missing_folders(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    text = "bake \\ud800 \\u001b[31mbread\\u202e"
    file.write_bytes(b'\xef\xbb\xbf{"text": "%s", "route": "weather"}\n' % text.encode())
    page = tmp_path / "none" / "report.html"
    assert main(["eval", str(file), "--rules", str(rules)]) == 0
    assert "bake ?  [31mbread " in capsys.readouterr().out
    assert main(["eval", str(file), "--rules", str(rules), "--html", str(page)]) == 1
    assert "cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_calibrate_in_a_folder_that_takes_no_files_says_so_and_leaves_none(
    rules: Path, rows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(rules))

    before = (rules / "routes.yaml").read_bytes()
    monkeypatch.setattr(tempfile, "mkstemp", full)
    share = ["--share", "api/code=20"]
    assert main(["calibrate", str(rows), "--rules", str(rules), *share]) == 1
    assert "nothing written" in capsys.readouterr().err
    assert (rules / "routes.yaml").read_bytes() == before
    assert [p.name for p in rules.iterdir()] == ["routes.yaml"]
