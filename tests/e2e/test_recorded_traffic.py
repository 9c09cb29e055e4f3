"""All recorded requests of real tools through a real proxy, three times: left alone, moved wherever
that is possible, and moved although the first target is dead.

The clients address the real providers' names. A company proxy of ours, to which all connections of
the proxy go, leads every one of them to one recording upstream whose certificate has all the names.
"""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from proxy_kit import (
    Proxy,
    Seen,
    Upstream,
    leads_to,
    make_certificates,
    proxy,
    upstream,
    write_rules,
)
from sidecar_process import sidecar_process
from turnout_rules.endpoints import UNSIZED
from turnout_rules.loading import load_rules
from turnout_rules.reading import Reader
from turnout_rules.replay import Replayed, changed_fields, replay

RECORDED = Path(__file__).parents[1] / "data" / "recorded.jsonl"
LINES = RECORDED.read_bytes().splitlines()
CLIENT_KEY = "sk-the-clients-own-key"
KEY_HEADERS = {"authorization": f"Bearer {CLIENT_KEY}", "x-api-key": CLIENT_KEY}
COUNTS = {
    "responses": {"moved": 51, "pinned": 40},
    "chat": {"moved": 72, "pinned": 6},
    "completions": {"moved": 3},
    "embeddings": {"moved": 2},
    "messages": {"moved": 19, "pinned": 14},
    "images": {"passed": 2},
    "(other)": {"passed": 40},
}
ESTIMATES = 6
"""Requests that only ask how many tokens they are: their target cannot count."""

pytestmark = pytest.mark.timeout(300)

NO_RULE = "routes:\n  - {name: rest, match: [.*], target: pass}\n"
MOVE_ALL = """
routes:
  - name: all
    when: {{endpoint: [chat, completions, responses, messages, embeddings]}}
    target: {target}
    fallback: [{fallback}]
"""
SUPPORTS = "[tools, image, audio, file, json_schema, logprobs]"
UPSTREAMS = """
upstreams:
  near: {{base_url: "{near}/v1", supports: {all}}}
  dead: {{base_url: "http://127.0.0.1:1/v1", supports: {all}}}
"""


@dataclass
class Request:
    """A recorded request as it is sent here."""

    url: str
    headers: list[tuple[str, str]]
    body: bytes


def recorded(port: int) -> list[Request]:
    """All of them; the one local server of the recording is ours on `port`."""
    requests = []
    for line in LINES:
        one = json.loads(line)
        headers = {**one["headers"], **KEY_HEADERS}
        headers = {k: v for k, v in headers.items() if k.lower() != "content-encoding"}
        url = one["uri"].replace(":11434", f":{port}")
        requests.append(Request(url, list(headers.items()), one["body"].encode()))
    return requests


def hosts() -> list[str]:
    return sorted({urlsplit(json.loads(line)["uri"]).hostname or "" for line in LINES})


@dataclass
class World:
    """Where requests can arrive."""

    origin: Upstream
    """Every provider that a client addresses."""
    near: Upstream
    """The one that the rules name."""
    way: int
    ca: Path
    folder: Path

    def rules(self, routes: str) -> Path:
        """A rules folder with these routes."""
        names = ", ".join(f'"{host}"' for host in hosts())
        turnout = (
            f"proxy:\n  intercept: [{names}]\n  upstream_ca: {self.ca}\n"
            f"  upstream_proxy: http://127.0.0.1:{self.way}\n"
            'classifier: {kind: "off"}\n'
        )
        upstreams = UPSTREAMS.format(near=self.near.url, all=SUPPORTS)
        return write_rules(
            self.folder / "rules", routes=routes, upstreams=upstreams, turnout=turnout
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recorded")
    ca, server = make_certificates(folder, (*hosts(), "127.0.0.1"))
    with (
        upstream(server_file=server) as origin,
        upstream() as near,
        leads_to(origin.port) as way,
    ):
        yield World(origin, near, way, ca, folder)


@pytest.fixture(autouse=True)
def forget(world: World) -> None:
    world.origin.seen.clear()
    world.near.seen.clear()


def send_all(p: Proxy, world: World) -> list[tuple[Request, Any, httpx2.Response]]:
    """Each request, what of it arrived, and the answer."""
    trust = ssl.create_default_context(cafile=str(p.bundle))
    sent = []
    with httpx2.Client(proxy=p.url, verify=trust, trust_env=False, timeout=30) as client:
        client.headers.clear()
        for request in recorded(world.near.port):
            asked = client.build_request(
                "POST", request.url, headers=request.headers, content=request.body
            )
            answer = client.send(asked)
            request.headers = [(n.decode(), v.decode()) for n, v in asked.headers.raw]
            sent.append((request, (len(world.origin.seen), len(world.near.seen)), answer))
    return sent


def arrivals(
    sent: list[tuple[Request, Any, httpx2.Response]], world: World
) -> Iterator[tuple[Request, Upstream, Seen, httpx2.Response]]:
    """Each request with the upstream it reached and how it looked there, but for estimates."""
    before = (0, 0)
    for request, counts, answer in sent:
        assert answer.status_code == 200, (request.url, answer.text)
        if counted(answer) == "estimate":
            assert counts == before, "an estimate asks nobody"
            continue
        assert sum(counts) == sum(before) + 1, request.url
        is_near = counts[1] > before[1]
        where = world.near if is_near else world.origin
        yield request, where, where.seen[counts[is_near] - 1], answer
        before = counts


def counted(answer: httpx2.Response) -> str:
    """How the tokens were counted that a request only asked to count; else empty."""
    return str(answer.headers.get("x-turnout-count", ""))


def dry(world: World, routes: str) -> list[Replayed]:
    rules = load_rules(world.rules(routes))
    return list(replay(LINES, rules.table, Reader(rules.settings.reading)))


def json_diff(before: bytes, after: bytes) -> set[str]:
    return {name.lstrip("+-") for name in changed_fields(before, after)}


def test_without_a_rule_every_byte_arrives(world: World) -> None:
    with proxy(world.folder / "p1", world.rules(NO_RULE)) as p:
        sent = send_all(p, world)
    assert len(sent) == 255
    for request, _, seen, _ in arrivals(sent, world):
        parts = urlsplit(request.url)
        assert seen.path == parts.path + (f"?{parts.query}" if parts.query else "")
        assert seen.body == request.body
        assert seen.fields == request.headers


def test_a_rule_that_moves_all_that_can_be_moved_changes_the_model_and_nothing_unnamed(
    world: World,
) -> None:
    routes = MOVE_ALL.format(target="near/one-model", fallback="").replace("fallback: []", "")
    planned = dry(world, routes)
    with proxy(world.folder / "p2", world.rules(routes)) as p:
        sent = send_all(p, world)
    check_moved(world, planned, sent)


def test_a_dead_first_target_costs_no_request(world: World) -> None:
    routes = MOVE_ALL.format(target="dead/one-model", fallback="near/one-model")
    planned = dry(world, routes)
    rules = world.rules(routes)
    with (
        sidecar_process(world.folder / "s3", rules) as sidecar,
        proxy(world.folder / "p3", rules, "--gateway", sidecar.url) as p,
    ):
        sent = send_all(p, world)
    check_moved(world, planned, sent)
    attempts = [
        a.headers["x-turnout-attempts"] for _, _, a in sent if "x-turnout-attempts" in a.headers
    ]
    assert any("dead/one-model" in a for a in attempts)


def check_moved(
    world: World,
    planned: list[Replayed],
    sent: list[tuple[Request, Any, httpx2.Response]],
) -> None:
    """What arrived is what the dry run said, and only what it named has changed."""
    table: dict[str, Counter[str]] = {}
    asked = [p for p, (_, _, a) in zip(planned, sent, strict=True) if counted(a) != "estimate"]
    assert len(sent) - len(asked) == ESTIMATES
    for plan, (request, where, seen, answer) in zip(asked, arrivals(sent, world), strict=True):
        is_local = request.url.startswith("http://localhost")
        has_moved = where is world.near and not (is_local and plan.outcome != "moved")
        outcome = "moved" if has_moved else plan.outcome
        table.setdefault(plan.endpoint, Counter())[outcome] += 1
        assert has_moved == (plan.outcome == "moved"), (plan.why, request.url)
        if has_moved:
            assert seen.json["model"] == "one-model"
            assert json_diff(request.body, seen.body) == {n.lstrip("+-") for n in plan.changed}
            named = " ".join(plan.adjustments)
            assert all(name in named for name in json_diff(request.body, seen.body) - {"model"})
            assert CLIENT_KEY not in str(seen.fields)
            assert seen.headers["content-length"] == str(len(seen.body))
            assert "transfer-encoding" not in seen.headers
            assert answer.headers["x-turnout-target"] == "near/one-model"
        else:
            assert seen.body == request.body
            assert plan.why
            # What no rule can move is not even read.
            if plan.endpoint not in ("(other)", *UNSIZED):
                assert answer.headers["x-turnout-layer"] == "pass"
    print(json.dumps(table, indent=1))
    assert table == COUNTS
