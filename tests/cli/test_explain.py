"""`turnout explain`: what people and programs read from it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnout_cli.main import main

ROUTES = """\
routes:
  - name: code
    match: [code, 函数, debug*]
    priority: 10
    target: api/code-model
  - name: translation
    match: [翻译, translate]
    priority: 9
    target: api/translate-model
  - name: fallback
    match: [.*]
    target: api/general
upstreams:
  api: {base_url: "https://api.example.com/v1"}
"""


@pytest.fixture
def rules(tmp_path: Path) -> str:
    (tmp_path / "routes.yaml").write_text(ROUTES, "utf-8")
    return str(tmp_path)


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    main(["explain", "--json", *arguments])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_json_says_route_target_layer_reason_time_and_hits(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row = explain(capsys, "--rules", rules, "帮我debug这个函数, translate")
    assert (row["route"], row["target"], row["layer"]) == ("code", "api/code-model", "rule")
    assert row["reason"] == 'keyword "函数" (priority 10)'
    assert row["hits"] == [
        {"route": "code", "pattern": "函数"},
        {"route": "code", "pattern": "debug*"},
        {"route": "translation", "pattern": "translate"},
    ]
    assert isinstance(row["elapsed_us"], float)
    assert 0 < row["elapsed_us"] < 100_000


def test_text_says_what_won_and_what_lost(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", rules, "翻译 "]) == 0
    said = capsys.readouterr().out
    assert said.startswith("translation → api/translate-model  [rule]")
    assert "lost      fallback: the catch-all comes last" in said
    assert "µs" in said


def test_a_whole_body_is_read_as_the_proxy_reads_it(
    rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body.json"
    system = "<system-reminder>translate everything</system-reminder>"
    content = [{"type": "text", "text": system}, {"type": "text", "text": "write code"}]
    messages = [{"role": "user", "content": content}]
    body.write_text(json.dumps({"model": "claude", "max_tokens": 9, "messages": messages}))
    row = explain(capsys, "--rules", rules, "--body", str(body), "--path", "/v1/messages")
    assert row["route"] == "code"
    assert row["hits"] == [{"route": "code", "pattern": "code"}]


def test_a_header_names_the_route_of_a_body(
    rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"model": "m", "messages": [{"role": "user", "content": "code"}]}')
    header = "X-Turnout-Route: translation"
    row = explain(capsys, "--rules", rules, "--body", str(body), "--header", header)
    assert row["route"] == "translation"


def test_a_body_that_cannot_be_read_passes_and_says_why(
    rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = tmp_path / "body.json"
    body.write_text("nope")
    assert main(["explain", "--rules", rules, "--body", str(body)]) == 1
    assert "not JSON" in capsys.readouterr().out
    assert main(["explain", "--rules", rules, "--body", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_text_and_a_body_are_one_too_many(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", rules]) == 2
    assert main(["explain", "--rules", rules, "x", "--body", "y"]) == 2
    assert "one of the two" in capsys.readouterr().err


@pytest.mark.quiet
def test_it_reads_stdin_answers_quickly_and_imports_no_proxy(rules: str) -> None:
    program = (
        "import sys; from turnout_cli.main import main; status = main(sys.argv[1:]); "
        "assert 'mitmproxy' not in sys.modules and 'aiohttp' not in sys.modules; sys.exit(status)"
    )
    command = [sys.executable, "-c", program, "explain", "--rules", rules, "--json", "-"]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run(
            command, input="翻译\n".encode(), capture_output=True, timeout=30, check=True
        )
        times.append(time.perf_counter() - started)
        assert json.loads(done.stdout)["route"] == "translation"
    assert min(times) < 1.0  # 0.3 s on an idle machine; the suite shares its cores
