"""The turn memory on both planes: what rules can tell apart, it never mixes up."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from proxy_kit import Upstream, plane, proxy, upstream, write_rules

ROUTES = """
routes:
  - {name: guests, when: {header: {x-team: guest}}, priority: 9, target: block}
  - {name: a, when: {header: {x-team: a}}, priority: 8, target: two/a}
  - {name: b, when: {header: {x-team: b}}, priority: 7, target: two/b}
  - {name: azure, when: {path: '*/deployments/*'}, priority: 6, target: two/azure}
  - {name: rest, match: [.*], target: two/rest}
"""
BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "the very same words"}]}
AZURE = "/openai/deployments/gpt-4o/chat/completions?api-version=2026-01-01"
ASKED: dict[str, tuple[str, dict[str, str], str]] = {
    # name: path, headers, the model that must answer ("" : refused)
    "team a": ("/v1/chat/completions", {"x-team": "a"}, "a"),
    "team b": ("/v1/chat/completions", {"x-team": "b"}, "b"),
    "guest": ("/v1/chat/completions", {"x-team": "guest"}, ""),
    "nobody": ("/v1/chat/completions", {}, "rest"),
    "another key": ("/v1/chat/completions", {"authorization": "Bearer other"}, "rest"),
    "azure": (AZURE, {"api-key": "k"}, "azure"),
}


@pytest.fixture(scope="module")
def two() -> Iterator[Upstream]:
    with upstream() as it:
        yield it


@pytest.fixture(scope="module", params=["proxy", "gateway"])
def address(
    request: pytest.FixtureRequest, two: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A base URL without its `/v1`."""
    folder = tmp_path_factory.mktemp("turns")
    settings = f"proxy: {{origin: '{two.url}'}}\nclassifier: {{kind: 'off'}}\n"
    upstreams = f"upstreams:\n  two: {{base_url: '{two.url}/v1'}}\n"
    rules = write_rules(folder / "rules", routes=ROUTES, upstreams=upstreams, turnout=settings)
    if request.param == "proxy":
        with proxy(folder / "p", rules) as running:
            yield running.base_url
        return
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "turnout_sidecar", "--rules", str(rules), "--port", "0"]
    with plane(folder, "sidecar", [*command, "--ready-file", str(ready)], ready):
        yield f"http://127.0.0.1:{json.loads(ready.read_text())['port']}"


def send(address: str, name: str, text: str) -> str:
    """The model that answered; "" if the request was refused."""
    path, headers, _ = ASKED[name]
    body: dict[str, Any] = {**BODY, "messages": [{"role": "user", "content": text}]}
    with httpx2.Client(trust_env=False, timeout=20) as client:
        answer = client.post(address + path, json=body, headers=headers)
    if answer.status_code == 403:
        return ""
    assert answer.status_code == 200, answer.text
    return answer.headers["x-turnout-target"].removeprefix("two/")


@pytest.mark.parametrize("first", ASKED)
def test_the_first_of_a_turn_decides_for_nobody_whom_rules_tell_apart(
    first: str, address: str
) -> None:
    text = f"the very same words, {first} first"
    send(address, first, text)
    got = {name: send(address, name, text) for name in (*ASKED, first)}
    assert got == {name: model for name, (_, _, model) in ASKED.items()}
