"""Requests that only count tokens follow their conversation, are estimated, or pass."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from aiohttp import web

from proxy_kit import (
    Proxy,
    Seen,
    Upstream,
    leads_to,
    make_certificates,
    proxy,
    say_ok,
    upstream,
    write_rules,
)

HOSTS = ("api.anthropic.com", "api.openai.com")
ROUTES = """
routes:
  - {name: maker, match: [parser], target: maker/claude-other, set: {temperature: 0.1}}
  - {name: openai, match: [scheduler], target: openai/gpt-other}
  - {name: near, match: [title], target: near/small}
  - {name: secret, match: [secret], target: block}
  - {name: rest, match: [.*], target: pass}
"""
UPSTREAMS = """
upstreams:
  maker: {{base_url: "https://api.anthropic.com", api_key_env: MAKER_KEY}}
  openai: {{base_url: "https://api.openai.com/v1", api_key_env: MAKER_KEY}}
  near: {{base_url: "{near}/v1"}}
"""


async def count(request: web.Request, seen: Seen) -> web.StreamResponse:
    """A maker's answer to a count; what else is asked is a chat."""
    if seen.path.partition("?")[0].endswith(("/count_tokens", "/input_tokens")):
        return web.json_response({"input_tokens": 4242}, headers={"request-id": "r1"})
    return await say_ok(request, seen)


@dataclass
class World:
    """One proxy, the makers behind it, and a server that nobody knows."""

    proxy: Proxy
    maker: Upstream
    near: Upstream

    def post(self, url: str, body: dict[str, Any]) -> httpx2.Response:
        self.maker.seen.clear()
        self.near.seen.clear()
        trust = ssl.create_default_context(cafile=str(self.proxy.bundle))
        headers = {"x-api-key": "the-clients-own", "authorization": "Bearer the-clients-own"}
        with httpx2.Client(proxy=self.proxy.url, verify=trust, trust_env=False) as client:
            return client.post(url, json=body, headers=headers)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("counting")
    ca, server = make_certificates(folder, HOSTS)
    with (
        upstream(count, server_file=server) as maker,
        upstream(count) as near,
        leads_to(maker.port) as way,
    ):
        turnout = (
            f"proxy:\n  upstream_ca: {ca}\n  upstream_proxy: http://127.0.0.1:{way}\n"
            'classifier: {kind: "off"}\n'
        )
        upstreams = UPSTREAMS.format(near=near.url)
        rules = write_rules(folder / "r", routes=ROUTES, upstreams=upstreams, turnout=turnout)
        with proxy(folder / "p", rules, environ={"MAKER_KEY": "the-makers-key"}) as p:
            yield World(p, maker, near)


def messages(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus", "messages": [{"role": "user", "content": text}], **fields}


ANTHROPIC = "https://api.anthropic.com/v1/messages/count_tokens?beta=true"
OPENAI = "https://api.openai.com/v1/responses/input_tokens"


def test_the_target_counts_where_it_can(world: World) -> None:
    answer = world.post(ANTHROPIC, messages("fix the parser"))
    assert answer.json() == {"input_tokens": 4242}
    assert answer.headers["x-turnout-count"] == "target"
    assert answer.headers["x-turnout-target"] == "maker/claude-other"
    seen = world.maker.last
    assert seen.path == "/v1/messages/count_tokens?beta=true"
    assert seen.json == messages("fix the parser") | {"model": "claude-other"}
    assert seen.headers["x-api-key"] == "the-makers-key"
    assert "the-clients-own" not in str(seen.fields)


def test_openais_counting_follows_too(world: World) -> None:
    answer = world.post(OPENAI, {"model": "gpt-5", "input": "look at the scheduler"})
    assert answer.headers["x-turnout-count"] == "target"
    assert world.maker.last.path == "/v1/responses/input_tokens"
    assert world.maker.last.json["model"] == "gpt-other"


@pytest.mark.parametrize(
    ("url", "body", "more"),
    [
        (ANTHROPIC, messages("a title " + "x" * 700), {}),
        (
            OPENAI,
            {"model": "gpt-5", "input": "a title " + "x" * 700},
            {"object": "response.input_tokens"},
        ),
    ],
)
def test_else_it_is_estimated_and_says_so(
    world: World, url: str, body: dict[str, Any], more: dict[str, str]
) -> None:
    answer = world.post(url, body)
    assert answer.status_code == 200
    counted = answer.json()
    assert counted == {**more, "input_tokens": counted["input_tokens"]}
    assert 200 <= counted["input_tokens"] <= 300
    assert answer.headers["x-turnout-count"] == "estimate"
    assert answer.headers["x-turnout-target"] == "near/small"
    assert not world.maker.seen
    assert not world.near.seen


def test_what_passes_is_counted_where_it_goes_and_stays_as_it_was(world: World) -> None:
    body = messages("hello")
    answer = world.post(ANTHROPIC, body)
    assert world.maker.last.json == body
    assert world.maker.last.headers["x-api-key"] == "the-clients-own"
    assert not [name for name in answer.headers if name.startswith("x-turnout")]
    broken = world.post(ANTHROPIC, {"messages": []})
    assert broken.json() == {"input_tokens": 4242}


def test_what_is_blocked_is_not_counted_elsewhere(world: World) -> None:
    answer = world.post(ANTHROPIC, messages("a secret"))
    assert answer.status_code == 403
    assert "x-turnout-count" not in answer.headers
    assert not world.maker.seen


def test_a_count_follows_the_turn_it_belongs_to(world: World) -> None:
    asked = messages("fix the parser", max_tokens=100)
    url = "https://api.anthropic.com/v1/messages?beta=true"
    assert world.post(url, asked).headers["x-turnout-target"] == "maker/claude-other"
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a secret title"}
    grown = messages("fix the parser")
    grown["messages"] += [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    answer = world.post(ANTHROPIC, grown)
    assert answer.headers["x-turnout-target"] == "maker/claude-other"
    assert json.loads(world.maker.last.body)["messages"] == grown["messages"]
