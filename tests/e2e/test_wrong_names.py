"""Names that nothing is called by: refused on both planes in the client's format, never sent on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from proxy_kit import Proxy, Upstream, proxy, upstream, write_rules
from sidecar_process import SidecarProcess, sidecar_process

ROUTES = """
routes:
  - {name: code, match: [debug], priority: 5, target: near/code-model}
  - {name: coding-help, priority: 4, match: [help], target: near/help-model}
  - {name: watched, priority: 3, match: [watch], target: near/watched-model, observe: true}
  - {name: drops, priority: 2, match: [odd], target: near/gpt-4o, set: {logit_bias: null}}
  - {name: rest, match: [.*], target: pass}
"""
EVIL = "nosuch\n\x1b[31m\u2028ERROR: all is lost"
IN_HEADER = "nosuch\u2028ERROR: all is lost".encode()


@dataclass
class Planes:
    """Both planes over one provider, which is the client's own and the target, too."""

    proxy: Proxy
    sidecar: SidecarProcess
    near: Upstream

    @property
    def urls(self) -> list[str]:
        return [self.proxy.base_url, self.sidecar.url]

    @property
    def logs(self) -> str:
        return self.proxy.log + self.sidecar.log


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    folder = tmp_path_factory.mktemp("names")
    with upstream() as near:
        settings = {
            "proxy": {"origin": near.url, "anthropic_origin": near.url},
            "classifier": {"kind": "off"},
        }
        rules = write_rules(
            folder / "rules",
            routes=ROUTES,
            upstreams=f'upstreams: {{near: {{base_url: "{near.url}/v1"}}}}\n',
            turnout=json.dumps(settings),
        )
        with sidecar_process(folder / "s", rules) as sidecar:
            arguments = ("--sidecar", sidecar.url, "--gateway", sidecar.url)
            with proxy(folder / "p", rules, *arguments) as p:
                yield Planes(p, sidecar, near)


@pytest.fixture
def planes(running: Planes) -> Planes:
    running.near.seen.clear()
    return running


def post(
    base: str, text: str, *, path: str = "/v1/chat/completions", headers: Any = None, **more: Any
) -> httpx2.Response:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **more}
    return httpx2.post(base + path, json=body, headers=headers, trust_env=False, timeout=20)


@pytest.mark.parametrize(
    "naming", [{"model": "turnout/coed"}, {"headers": {"x-turnout-route": "coed"}}]
)
def test_a_route_that_is_not_there_is_a_404_that_names_the_routes(
    planes: Planes, naming: dict[str, Any]
) -> None:
    for base in planes.urls:
        answer = post(base, "debug", **naming)
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["code"] == "route_not_found"
        assert error["type"] == "invalid_request_error"
        assert error["message"] == (
            "No route is called `coed`; did you mean `code`? "
            "Routes: `code`, `coding-help`, `watched`, `drops`, `rest`."
        )
    assert not planes.near.seen


def test_an_anthropic_client_is_told_in_its_format(planes: Planes) -> None:
    for base in planes.urls:
        answer = post(base, "hi", path="/v1/messages", model="turnout/nosuch", max_tokens=5)
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "not_found_error"
    assert not planes.near.seen


def test_a_corrected_name_is_taken_in_the_same_turn(planes: Planes) -> None:
    for base in planes.urls:
        assert post(base, "debug again", headers={"x-turnout-route": "nope"}).status_code == 404
        assert post(base, "debug again").headers["x-turnout-route"] == "code"


def test_auto_that_no_route_serves_is_refused_and_not_sent_to_a_provider(planes: Planes) -> None:
    for base in planes.urls:
        answer = post(base, "good morning", model="turnout/auto")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
        assert "`turnout/auto`" in answer.json()["error"]["message"]
    assert not planes.near.seen


def test_an_observed_route_that_is_asked_for_by_name_is_carried_out(planes: Planes) -> None:
    for base in planes.urls:
        assert post(base, "hi", model="turnout/watched").status_code == 200
        assert planes.near.last.json["model"] == "watched-model"


def test_no_control_character_of_a_name_reaches_a_log_or_a_header(planes: Planes) -> None:
    for base in planes.urls:
        assert post(base, "hi", model=f"turnout/{EVIL}").status_code == 404
        assert post(base, "hi", headers={"x-turnout-route": IN_HEADER}).status_code == 404
    headers = {
        "x-turnout-targets": "near/m",
        "x-turnout-route": "a%0AERROR: forged%1B[31m",
        "x-turnout-layer": "rule",
    }
    answer = post(planes.sidecar.url, "hi", headers=headers)
    assert answer.headers["x-turnout-route"] == "a?ERROR: forged?[31m"
    assert "nosuch" in planes.proxy.log and "forged" in planes.sidecar.log
    for sign in ("\x1b", "\u2028", "\nERROR"):
        assert sign not in planes.logs


def test_an_adjustment_made_twice_is_named_once(planes: Planes) -> None:
    for base in planes.urls:
        answer = post(base, "odd", model="gpt-4o-mini", logit_bias={"1": 1})
        assert answer.headers["x-turnout-adjustments"] == "logit_bias dropped"
        assert "logit_bias" not in planes.near.last.json
