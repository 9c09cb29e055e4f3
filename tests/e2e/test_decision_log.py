"""The proxy's own decisions reach the decision log, which `turnout suggest` reads."""

from __future__ import annotations

import json
import ssl
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy_kit import Proxy, make_certificates, proxy, upstream, wait_until, write_rules
from sidecar.classifier_tables import fetched_models
from turnout_cli.main import main

__all__ = ["fetched_models"]

ROUTES = """
routes:
  - {name: code, match: [debug], target: pass}
  - {name: rest, match: [.*], target: pass}
"""
SETTINGS = """
proxy: {{intercept: [localhost], origin: "{url}", upstream_ca: "{ca}"}}
classifier: {{kind: "off"}}
sidecar: {{port: 1{log}}}
"""
FLIGHTS = ["book a flight to Rome", "book a flight to Oslo", "I want to book a flight to Paris"]


def send(p: Proxy, url: str, text: str) -> None:
    context = ssl.create_default_context(cafile=str(p.bundle))
    message: dict[str, Any] = {"role": "user", "content": text}
    is_tunnelled = url.startswith("https")
    with httpx2.Client(
        proxy=p.url if is_tunnelled else None, verify=context, trust_env=False, timeout=20
    ) as client:
        body = {"model": "gpt-4o-mini", "messages": [message]}
        answer = client.post(f"{url}/v1/chat/completions", json=body)
    assert answer.status_code == 200


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.local
@pytest.mark.usefixtures("fetched_models")
def test_traffic_through_the_proxy_becomes_a_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ca, server = make_certificates(tmp_path, ("localhost", "127.0.0.1"))
    with upstream(server_file=server) as origin:
        rules = write_rules(
            tmp_path / "rules",
            routes=ROUTES,
            turnout=SETTINGS.format(url=origin.url, ca=ca, log=""),
        )
        with proxy(tmp_path / "p", rules) as p:
            monkeypatch.setenv("TURNOUT_DATA_DIR", str(tmp_path / "p" / "data"))
            send(p, p.base_url, "nobody asked for this to be kept")
            settings = SETTINGS.format(url=origin.url, ca=ca, log=", decision_log: log.jsonl")
            (rules / "turnout.yaml").write_text(settings)
            wait_until(lambda: "rules reloaded" in p.log)
            send(p, p.base_url, FLIGHTS[0])
            send(p, origin.url, FLIGHTS[1])
            send(p, origin.url, FLIGHTS[2])
            send(p, p.base_url, "please debug this")
            # The same turn again, as a tool's retry is: decided once.
            send(p, p.base_url, "please debug this")
            log = tmp_path / "p" / "data" / "log.jsonl"
            wait_until(lambda: len(rows(log)) >= 4)
    kept = [(row["text"], row["route"], row["layer"], row["source"]) for row in rows(log)]
    expected = [(text, "rest", "default", "proxy") for text in FLIGHTS]
    assert kept == [*expected, ("please debug this", "code", "rule", "proxy")]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert main(["suggest", "--rules", str(rules)]) == 0
    out = capsys.readouterr().out
    assert "flight" in out and FLIGHTS[1] in out and "debug" not in out
