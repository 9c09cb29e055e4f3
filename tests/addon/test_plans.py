"""Plans, without a flow: where a request goes and with which headers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from proxy_kit import write_rules
from turnout_addon import plans
from turnout_addon.hosts import Origin
from turnout_addon.routing import Routing
from turnout_rules.loading import load_rules

GATEWAY = Origin("http", "127.0.0.1", 8083)
ORIGIN = Origin("https", "api.openai.com", 443)
ROUTES = """
routes:
  - {name: elsewhere, match: [elsewhere], target: other/m}
  - {name: same, match: [same], target: openai/gpt-4o}
  - {name: own_key, match: [ownkey], target: keyed/gpt-4o}
  - {name: keyless, match: [keyless], target: unkeyed/m}
  - {name: engine, match: [engine], target: local/m, fallback: [other/m]}
  - {name: backed, match: [backed], target: pass, fallback: [other/m]}
  - {name: stop, match: [stop], target: block, message: Not here.}
"""
UPSTREAMS = """
upstreams:
  other: {base_url: https://other.example/v1, api_key_env: OTHER_KEY, headers: {x-team: red}}
  openai: {base_url: https://api.openai.com/v1}
  keyed: {base_url: https://api.openai.com/v1, api_key_env: OTHER_KEY}
  unkeyed: {base_url: https://unkeyed.example/v1, api_key_env: NO_SUCH_KEY}
  local: {engine: llamacpp, models: {m: {model_path: m.gguf}}}
"""
FIELDS = (
    ("Host", "api.openai.com"),
    ("Authorization", "Bearer sk-client"),
    ("Cookie", "a=b"),
    ("OpenAI-Organization", "org"),
    ("Content-Type", "application/json"),
    ("Transfer-Encoding", "chunked"),
    ("X-Turnout-Route", "forged"),
    ("User-Agent", "test"),
    ("Digest", "x"),
)


@pytest.fixture
def routing(tmp_path: Path) -> Routing:
    rules = write_rules(tmp_path, routes=ROUTES, upstreams=UPSTREAMS)
    return Routing(load_rules(rules), {"OTHER_KEY": "sk-other"})


def planned(routing: Routing, text: str, path: str = "/v1/chat/completions") -> plans.Plan:
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}]}
    raw = json.dumps(body).encode()
    received = plans.Received(ORIGIN, False, path, FIELDS, raw)
    request = routing.reader.read(method="POST", path=path, headers={}, body=raw, host=ORIGIN.host)
    decision = routing.table.decide(request)
    return plans.plan(routing, received, request, decision, GATEWAY, token="t0ken")


def sent(plan: plans.Plan) -> tuple[plans.Send, dict[str, str]]:
    assert isinstance(plan, plans.Send)
    headers = {name.lower(): value for name, value in plan.fields}
    assert len(headers) == len(plan.fields)
    return plan, headers


def test_another_host_gets_its_own_key_and_nothing_of_the_clients(routing: Routing) -> None:
    plan, headers = sent(planned(routing, "elsewhere", "/v1/chat/completions?beta=true"))
    assert (plan.origin.host, plan.path) == ("other.example", "/v1/chat/completions?beta=true")
    assert headers == {
        "host": "other.example",
        "authorization": "Bearer sk-other",
        "content-type": "application/json",
        "user-agent": "test",
        "x-team": "red",
        "content-length": str(len(plan.body)),
    }


def test_the_same_server_keeps_the_clients_headers_unless_the_target_has_a_key(
    routing: Routing,
) -> None:
    _, headers = sent(planned(routing, "same"))
    assert headers["authorization"] == "Bearer sk-client"
    assert headers["openai-organization"] == "org"
    assert not {"transfer-encoding", "digest", "x-turnout-route"} & headers.keys()
    _, headers = sent(planned(routing, "ownkey"))
    assert headers["authorization"] == "Bearer sk-other"
    assert "cookie" not in headers


def test_without_a_key_nothing_is_sent(routing: Routing) -> None:
    plan = planned(routing, "keyless")
    assert isinstance(plan, plans.Answer)
    assert (plan.status, plan.code) == (401, "missing_key")
    assert b"sk-client" not in plan.body


def test_the_gateway_gets_the_body_as_it_came_and_the_decision(routing: Routing) -> None:
    plan, headers = sent(planned(routing, "engine"))
    assert plan.is_for_gateway
    assert json.loads(plan.body)["model"] == "gpt-4o-mini"
    assert headers["x-turnout-targets"] == "local/m, other/m"
    assert headers["x-turnout-route"] == "engine"
    assert headers["x-turnout-token"] == "t0ken"
    assert not {"authorization", "cookie", "openai-organization"} & headers.keys()


def test_a_pass_with_a_fallback_is_handed_over_under_names_of_its_own(routing: Routing) -> None:
    plan, headers = sent(planned(routing, "backed", "/v1/chat/completions?x=1"))
    assert plan.is_for_gateway
    assert headers["x-turnout-targets"] == "pass, other/m"
    assert headers["x-turnout-pass-to"] == "https://api.openai.com/v1/chat/completions?x=1"
    own = {
        name.removeprefix("x-turnout-pass-"): value
        for name, value in headers.items()
        if name.startswith("x-turnout-pass-") and name != "x-turnout-pass-to"
    }
    assert own == {
        "authorization": "Bearer sk-client",
        "cookie": "a=b",
        "openai-organization": "org",
        "content-type": "application/json",
        "user-agent": "test",
        "digest": "x",
    }
    assert not {"authorization", "cookie", "openai-organization"} & headers.keys()


def test_a_block_and_a_pass(routing: Routing) -> None:
    plan = planned(routing, "stop")
    assert isinstance(plan, plans.Answer)
    assert json.loads(plan.body)["error"]["message"] == "Not here."
    assert planned(routing, "nothing of these") == plans.Leave(None)


def test_a_count_of_a_pass_with_a_fallback_stays_with_its_origin(routing: Routing) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "backed"}]}
    raw, path = json.dumps(body).encode(), "/v1/messages"
    received = plans.Received(ORIGIN, False, f"{path}/count_tokens", FIELDS, raw)
    request = routing.reader.read(method="POST", path=path, headers={}, body=raw, host=ORIGIN.host)
    decision = routing.table.decide(request)
    assert decision.target == "pass"
    assert plans.plan_count(routing, received, request, decision, GATEWAY) == plans.Leave(None)
    via = msgspec.structs.replace(decision, via_sidecar=True, fallback=("other/m",))
    assert plans.plan_count(routing, received, request, via, GATEWAY) == plans.Leave(None)
