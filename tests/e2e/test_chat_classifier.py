"""A chat model of our own as classifier: a real llama.cpp, asked through the sidecar's gateway."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sidecar_kit import sidecar_process, write_rules
from turnout_cli.main import main

pytestmark = [pytest.mark.local, pytest.mark.timeout(240)]
ROUTES = """
routes:
  - {name: cooking, examples: [how long do I boil an egg, recipe for soup], target: local/smollm2}
  - {name: weather, examples: [will it rain tomorrow, how cold is it], target: local/smollm2}
  - {name: rest, match: [.*], priority: -9, target: pass}
"""
UPSTREAMS = """
upstreams:
  local: {engine: llamacpp, models: {smollm2: {model_path: smollm2, max_model_len: 2048}}}
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"TURNOUT_{name}_DIR", str(tmp_path / name.lower()))
    folder = write_rules(tmp_path / "rules", ROUTES, UPSTREAMS)
    (folder / "turnout.yaml").write_text("classifier: {kind: chat, url: local/smollm2}\n")
    return folder


def test_the_engine_is_started_for_the_classifier_and_answers_it(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sidecar_process(rules, tmp_path) as (_, ready), httpx2.Client(trust_env=False) as client:
        url = f"http://127.0.0.1:{ready['port']}"

        def verdict(text: str) -> dict[str, Any]:
            answer = client.post(f"{url}/route", json={"text": text}, timeout=30)
            found: dict[str, Any] = answer.json()["verdict"]
            return found

        first = verdict("recipe for a soup with an egg")
        assert first["route"] is None and "late" in first["reason"], "the deadline holds meanwhile"
        deadline = time.monotonic() + 120
        while (said := verdict("recipe for a soup with an egg"))["route"] is None:
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        assert said["reason"] == "chat classifier"
        assert said["route"] in ("cooking", "weather")
        assert 0.0 < said["probability"] <= 1.0
        (engine,) = client.get(f"{url}/backends").json()["backends"]
        assert (engine["name"], engine["starts"]) == ("local/smollm2", 1)
        rows = tmp_path / "rows.jsonl"
        rows.write_text(json.dumps({"text": "recipe for bread", "route": "cooking"}))
        assert main(["eval", str(rows), "--rules", str(rules), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 1


def test_without_a_sidecar_the_command_line_says_what_is_missing(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"text": "recipe for bread", "route": "cooking"}))
    assert main(["eval", str(rows), "--rules", str(rules)]) == 1
    assert "only a running sidecar can ask: `turnout up`" in capsys.readouterr().err
