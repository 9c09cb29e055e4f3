"""How requests travel: encodings, framing, `Expect`, observe mode, metrics, paths, dead ends."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from backports import zstd

from proxy_kit import make_certificates, proxy, say_ok, upstream, wait_until, write_rules

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "debug"}]}).encode()


def http_client(setup: Any) -> httpx2.Client:
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    return httpx2.Client(proxy=setup.proxy.url, verify=context, trust_env=False, timeout=30.0)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


ENCODINGS = {
    "gzip": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "deflate-without-header": raw_deflate(BODY),
    "zstd": zstd.compress(BODY),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_compressed_body_is_read_and_arrives_plain(setup: Any, name: str) -> None:
    headers = {"content-encoding": name.split("-")[0], "content-type": "application/json"}
    with http_client(setup) as c:
        answer = c.post(
            f"{setup.origin.url}/v1/chat/completions", content=ENCODINGS[name], headers=headers
        )
    assert answer.headers["x-turnout-target"] == "other/code-model"
    seen = setup.other.last
    assert seen.json == json.loads(BODY) | {"model": "code-model"}
    assert "content-encoding" not in seen.headers
    assert seen.headers["content-length"] == str(len(seen.body))


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, zstd.compress])
def test_a_compressed_bomb_of_one_layer_passes_unread(setup: Any, pack: Any) -> None:
    name = {"gzip": "gzip", "zlib": "deflate"}.get(pack.__module__, "zstd")
    body = pack(b'{"x":"' + b"y" * (200 << 20) + b'"}')
    with http_client(setup) as c:
        answer = c.post(
            f"{setup.origin.url}/v1/chat/completions",
            content=body,
            headers={"content-encoding": name},
        )
    assert answer.headers["x-turnout-target"] == "pass"
    assert setup.origin.last.body == body


def test_a_chunked_request_that_is_rewritten_has_one_length_and_no_stale_words(setup: Any) -> None:
    stale = {
        "digest": "sha-256=x",
        "content-digest": "sha-256=:x:",
        "content-md5": "x",
        "te": "trailers",
        "trailer": "x-sum",
    }
    with http_client(setup) as c:
        pieces = iter([BODY[:10], BODY[10:]])
        c.post(f"{setup.origin.url}/v1/chat/completions", content=pieces, headers=stale)
    seen = setup.other.last
    names = [name.lower() for name, _ in seen.fields]
    assert names.count("content-length") == 1
    assert seen.headers["content-length"] == str(len(seen.body))
    assert not {"transfer-encoding", *stale} & set(names)


def test_expect_100_continue_is_answered(setup: Any) -> None:
    """By hand: the body is sent only after the interim answer."""
    with socket.create_connection(("127.0.0.1", setup.proxy.state["base_url_port"])) as s:
        s.settimeout(15)
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        s.sendall(head.encode())
        assert s.recv(1024).startswith(b"HTTP/1.1 100")
        s.sendall(BODY)
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
    assert setup.other.last.json["model"] == "code-model"
    assert "expect" not in setup.other.last.headers


def test_an_error_that_is_compressed_arrives_as_it_was_sent(setup: Any) -> None:
    from aiohttp import web

    error = gzip.compress(b'{"error": {"message": "no quota", "code": "insufficient_quota"}}')

    async def reply(request: Any, seen: Any) -> web.StreamResponse:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        return web.Response(status=429, body=error, headers=headers)

    setup.other.reply = reply
    with http_client(setup) as c:
        answer = c.post(f"{setup.origin.url}/v1/chat/completions", content=BODY)
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "insufficient_quota"


# -- proxies of their own -------------------------------------------------------------------------


def post(base: str, text: str = "debug", **headers: str) -> httpx2.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    url = f"{base}/v1/chat/completions"
    return httpx2.post(url, json=body, headers=headers, trust_env=False, timeout=40)


@contextmanager
def deaf_port() -> Iterator[int]:
    """A port where connections are neither accepted nor refused: its backlog is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
    try:
        yield port
    finally:
        for each in (*fillers, listener):
            each.close()


@contextmanager
def hangs_up() -> Iterator[int]:
    """A server that reads a request and closes without a word."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                connection.recv(65_536)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def rules_with(folder: Path, routes: str, upstreams: str, more: str = "") -> Path:
    turnout = f'classifier: {{kind: "off"}}\nsidecar: {{port: 1}}\n{more}'
    return write_rules(folder / "rules", routes=routes, upstreams=upstreams, turnout=turnout)


def test_an_upstream_that_cannot_be_reached_is_an_error_in_json(tmp_path: Path) -> None:
    with deaf_port() as deaf, hangs_up() as curt:
        upstreams = "upstreams:\n"
        for name, port in (("refusing", 1), ("deaf", deaf), ("curt", curt)):
            upstreams += f'  {name}: {{base_url: "http://127.0.0.1:{port}/v1"}}\n'
        routes = "routes:\n" + "".join(
            f"  - {{name: {name}, match: [{name}], target: {name}/m}}\n"
            for name in ("refusing", "deaf", "curt")
        )
        rules = rules_with(tmp_path, routes, upstreams)
        with proxy(tmp_path / "p", rules) as p:
            for name in ("refusing", "curt", "deaf"):
                answer = post(p.base_url, name)
                assert answer.status_code == 502, (name, answer.text)
                error = answer.json()["error"]
                assert error["code"] == "upstream_unreachable"
                assert error["message"].startswith("turnout: ")
                assert answer.headers["content-type"] == "application/json"
            assert "no connection within 10 s" in error["message"]


async def test_http2_clients_are_served_side_by_side_on_one_connection(tmp_path: Path) -> None:
    running = most = 0

    async def slow(request: Any, seen: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.3)
        running -= 1
        return await say_ok(request, seen)

    ca, server = make_certificates(tmp_path, ("localhost",))
    with upstream(server_file=server) as origin, upstream(slow) as near:
        routes = "routes:\n  - {name: code, match: [debug], target: near/x}\n"
        routes += "  - {name: dead, match: [dead], target: dead/x}\n"
        upstreams = f'upstreams:\n  near: {{base_url: "{near.url}/v1"}}\n'
        upstreams += '  dead: {base_url: "http://127.0.0.1:1/v1"}\n'
        more = f"proxy: {{intercept: [localhost], upstream_ca: {ca}}}\n"
        rules = rules_with(tmp_path, routes, upstreams, more)
        with proxy(tmp_path / "p", rules, "--", "--set", "http2=true") as p:
            trust = ssl.create_default_context(cafile=str(p.bundle))
            url = f"{origin.url}/v1/chat/completions"
            async with httpx2.AsyncClient(
                proxy=p.url, verify=trust, trust_env=False, http2=True, timeout=30
            ) as c:

                async def ask(text: str) -> httpx2.Response:
                    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                    return await c.post(url, json=body)

                await ask("debug first")  # opens the one connection
                answers = await asyncio.gather(*(ask(f"debug {n}") for n in range(30)))
                dead = await ask("a dead one")
                passed = await ask("none of these")
    assert {a.http_version for a in answers} == {"HTTP/2"}
    assert {a.json()["model"] for a in answers} == {"x"}
    assert most > 5  # mitmproxy's own limit for a connection
    assert (dead.http_version, dead.status_code) == ("HTTP/2", 502)
    assert dead.json()["error"]["code"] == "upstream_unreachable"
    assert passed.status_code == 200
    assert origin.last.json["model"] == "m"


def test_observe_mode_decides_shows_and_changes_nothing(tmp_path: Path) -> None:
    with upstream() as origin, upstream() as near:
        routes = "routes:\n  - {name: seen, match: [debug], target: near/x, observe: true}\n"
        routes += "  - {name: real, match: [write], target: near/x}\n"
        upstreams = f'upstreams:\n  near: {{base_url: "{near.url}/v1"}}\n'
        more = f"proxy: {{origin: {origin.url}}}\n"
        with proxy(tmp_path / "p", rules_with(tmp_path, routes, upstreams, more)) as p:
            answer = post(p.base_url, "debug", authorization="Bearer mine")
            assert answer.headers["x-turnout-observed"] == "true"
            assert answer.headers["x-turnout-target"] == "near/x"
            assert origin.last.json["model"] == "m"
            assert origin.last.headers["authorization"] == "Bearer mine"
            assert not near.seen
            assert post(p.base_url, "write").headers["x-turnout-target"] == "near/x"
            assert near.last.json["model"] == "x"


def metrics(url: str) -> str:
    return httpx2.get(url, trust_env=False).text


def test_metrics_count_decisions_refusals_and_reloads_without_a_word_of_a_prompt(
    tmp_path: Path,
) -> None:
    with upstream() as near:
        routes = "routes:\n  - {name: code, match: [debug], target: near/x}\n"
        routes += "  - {name: no, match: [stop], target: block}\n"
        upstreams = f'upstreams:\n  near: {{base_url: "{near.url}/v1"}}\n'
        rules = rules_with(tmp_path, routes, upstreams)
        with proxy(tmp_path / "p", rules, "--metrics-port", "0") as p:
            post(p.base_url, "debug the pelicans")
            post(p.base_url, "stop the pelicans")
            url = f"http://127.0.0.1:{p.state['metrics_port']}/metrics"
            (rules / "routes.yaml").write_text("routes: [")
            wait_until(lambda: "turnout_rules_broken 1.0" in metrics(url), 10.0, "broken rules")
            assert 'turnout_reloads_total{result="broken"} 1.0' in metrics(url)
            (rules / "routes.yaml").write_text(routes)
            wait_until(lambda: "turnout_rules_broken 0.0" in metrics(url), 10.0, "repaired rules")
            text = metrics(url)
    assert 'turnout_reloads_total{result="ok"} 1.0' in text
    assert 'turnout_requests_total{layer="rule",route="code",target="near/x"} 1.0' in text
    assert 'turnout_refused_total{code="route_blocked"} 1.0' in text
    assert "turnout_decision_seconds_bucket" in text
    assert "pelicans" not in text


# Where providers put the same endpoint, on the way in and as targets: (client's path, base URL's
# path, path at the target).
PATHS = [
    ("/v1/chat/completions", "/openai/v1", "/openai/v1/chat/completions"),  # Groq
    ("/chat/completions", "", "/chat/completions"),  # DeepSeek
    ("/v1beta/openai/chat/completions", "/v1beta/openai", "/v1beta/openai/chat/completions"),
    ("/api/v1/chat/completions", "/api/v1", "/api/v1/chat/completions"),  # OpenRouter
    (
        "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
        "/v1",
        "/v1/chat/completions",
    ),
]


@pytest.mark.parametrize(("path", "base", "arrived"), PATHS)
def test_providers_paths_are_known_and_joined(
    tmp_path: Path, path: str, base: str, arrived: str
) -> None:
    with upstream() as near:
        routes = "routes:\n  - {name: all, match: {all: [debug]}, target: near/x}\n"
        upstreams = f'upstreams:\n  near: {{base_url: "{near.url}{base}"}}\n'
        with proxy(tmp_path / "p", rules_with(tmp_path, routes, upstreams)) as p:
            body = json.loads(BODY)
            if "deployments" in path:
                del body["model"]
            answer = httpx2.post(
                p.base_url + path,
                json=body,
                headers={"api-key": "azure-key"},
                trust_env=False,
                timeout=20,
            )
            assert answer.status_code == 200, answer.text
    assert near.last.path == arrived
    assert near.last.json["model"] == "x"
    assert "azure-key" not in str(near.last.fields)
