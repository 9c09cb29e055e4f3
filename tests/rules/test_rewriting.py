"""A request on its way to another target: model, path, fields, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.bodies.making import chat, managed, read, read_recorded, recorded, target
from rules.bodies.tools import TOOLS, dumps
from turnout_rules.model import Route
from turnout_rules.reading import Unreadable
from turnout_rules.replay import changed_fields
from turnout_rules.rewriting import rewrite

OPENAI = "https://api.openai.com/v1"


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("compact", [True, False])
def test_only_the_model_changes(tool: str, compact: bool) -> None:
    path, build = TOOLS[tool]
    body = dumps(build(15_000), compact=compact)
    rewritten = rewrite(read(body, path=path), target(), None)
    model = json.loads(body)["model"]
    space = "" if compact else " "
    before = f'"model":{space}"{model}"'.encode()
    assert body.count(before) == 1
    assert rewritten.body == body.replace(before, f'"model":{space}"other-model"'.encode())
    assert rewritten.adjustments == ()


def test_model_names_are_escaped() -> None:
    rewritten = rewrite(read(chat("x")), target(model='a"b\\é'), None)
    assert json.loads(rewritten.body)["model"] == 'a"b\\é'


def test_the_upstreams_own_name_for_the_model_is_sent() -> None:
    rewritten = rewrite(read(chat("x")), target(model_model="gpt-4o-mini"), None)
    assert json.loads(rewritten.body)["model"] == "gpt-4o-mini"


def test_a_body_without_a_model_gets_one() -> None:
    path = "/openai/deployments/gpt/chat/completions?api-version=2024-02-01"
    rewritten = rewrite(read({"messages": []}, path=path), target(), None)
    assert rewritten.body == b'{"model":"other-model","messages": []}'


def test_a_route_writes_and_drops_fields() -> None:
    route = Route(name="r", set={"temperature": 0.2, "top_p": None, "seed": 7, "gone": None})
    body = b'{"model":"m", "top_p":1, "messages":[], "temperature":1}'
    rewritten = rewrite(read(body), target(), route)
    assert rewritten.body == b'{"seed":7,"model":"other-model", "messages":[], "temperature":0.2}'
    assert rewritten.adjustments == ("temperature set", "top_p dropped", "seed set")


def test_a_route_cannot_change_the_model_through_set() -> None:
    route = Route(name="r", set={"model": "x"})
    rewritten = rewrite(read(chat("x")), target(), route)
    assert json.loads(rewritten.body)["model"] == "other-model"


def test_what_a_route_sets_outranks_an_adjustment() -> None:
    route = Route(name="r", set={"logit_bias": {"1": 2}})
    rewritten = rewrite(read(chat("x", logit_bias={"5": 1})), target(), route)
    assert json.loads(rewritten.body)["logit_bias"] == {"1": 2}


PATHS: list[tuple[str, str, str]] = [
    (OPENAI, "/v1/chat/completions", "/v1/chat/completions"),
    (OPENAI, "/openai/v1/chat/completions", "/v1/chat/completions"),
    (OPENAI + "/", "/chat/completions", "/v1/chat/completions"),
    ("https://api.groq.com/openai/v1", "/v1/chat/completions", "/openai/v1/chat/completions"),
    ("https://api.deepseek.com", "/v1/chat/completions", "/chat/completions"),
    ("https://api.deepseek.com/beta", "/v1/completions", "/beta/completions"),
    (
        "https://generativelanguage.googleapis.com/v1beta/openai/",
        "/v1/chat/completions",
        "/v1beta/openai/chat/completions",
    ),
    ("https://openrouter.ai/api/v1", "/v1/responses", "/api/v1/responses"),
    ("https://api.anthropic.com", "/v1/messages?beta=true", "/v1/messages?beta=true"),
    ("https://api.anthropic.com/v1", "/v1/messages", "/v1/messages"),
    ("http://127.0.0.1:8000/v1", "/backend-api/codex/responses", "/v1/responses"),
    (
        "https://x.openai.azure.com",
        "/v1/chat/completions",
        "/openai/deployments/other-model/chat/completions?api-version=2024-10-21",
    ),
    (
        "https://x.openai.azure.com/openai/deployments/{model}?api-version=2025-01-01",
        "/v1/chat/completions",
        "/openai/deployments/other-model/chat/completions?api-version=2025-01-01",
    ),
    (
        "https://x.openai.azure.com/openai",
        "/openai/deployments/a/chat/completions?api-version=2023-05-15",
        "/openai/deployments/other-model/chat/completions?api-version=2023-05-15",
    ),
    ("https://x.openai.azure.com/openai/v1", "/v1/responses", "/openai/v1/responses"),
    ("https://x.openai.azure.com", "/v1/responses", "/openai/v1/responses"),
    (OPENAI, "/openai/deployments/a/chat/completions?api-version=1", "/v1/chat/completions"),
    ("", "/v1/chat/completions", "/v1/chat/completions"),
]


@pytest.mark.parametrize(("base_url", "path", "after"), PATHS)
def test_the_suffix_is_joined_to_the_targets_base(base_url: str, path: str, after: str) -> None:
    body: dict[str, Any] = {"model": "m", "messages": [], "prompt": "", "input": ""}
    assert rewrite(read(body, path=path), target(base_url), None).path == after


def test_a_key_in_the_query_never_crosses_hosts() -> None:
    path = "/v1beta/openai/chat/completions?key=AIza&sig=1&beta=true"
    origin = "https://generativelanguage.googleapis.com:443"
    request = read(chat("x"), path=path, origin=origin)
    assert rewrite(request, target(OPENAI), None).path == "/v1/chat/completions?beta=true"


def test_the_query_stays_at_its_own_host() -> None:
    path = "/v1/chat/completions?key=AIza&x=%2F"
    request = read(chat("x"), path=path, origin="https://api.openai.com:443")
    assert rewrite(request, target(OPENAI), None).path == path


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "http://api.openai.com:443",
        "https://api.openai.com:8443",
        "https://api.openai.com.evil.example:443",
        "http://127.0.0.1:8083",
    ],
)
def test_another_scheme_host_or_port_is_another_origin(origin: str) -> None:
    path = "/v1/chat/completions?key=AIza&beta=true"
    request = read(chat("x"), path=path, host="api.openai.com", origin=origin)
    assert rewrite(request, target(OPENAI), None).path == "/v1/chat/completions?beta=true"
    assert rewrite(request, target("http://127.0.0.1:5000/v1"), None).path.endswith("?beta=true")


@pytest.mark.parametrize(
    "to",
    [
        target(),
        target(OPENAI, "gpt-4o-mini"),
        target(OPENAI, "gpt-5"),
        managed("vllm"),
        managed("llamacpp"),
    ],
    ids=["unknown", "gpt-4o-mini", "gpt-5", "vllm", "llamacpp"],
)
def test_recorded_requests_change_in_the_model_and_named_fields_alone(to: Any) -> None:
    moved = 0
    for row in recorded():
        try:
            request = read_recorded(row)
        except Unreadable:
            continue
        rewritten = rewrite(request, to, None)
        changed = {name.lstrip("+-") for name in changed_fields(request.body, rewritten.body)}
        named = " ".join(rewritten.adjustments).replace("system messages", "messages input ")
        named = named.replace("developer role", "messages input instructions")
        unnamed = {name for name in changed - {"model"} if name not in named}
        assert unnamed <= ({"instructions"} if "merged" in named else set())
        before, after = json.loads(request.body), json.loads(rewritten.body)
        assert after["model"] == to.model.upstream_model
        for name in before.keys() - changed - {"model"}:
            assert after[name] == before[name]
        moved += 1
    assert moved == 209
