"""The process: where it listens, who may ask, how it starts and ends, what it says of itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from sidecar_kit import (
    Sidecar,
    answering,
    chunk,
    eventually,
    provider,
    sidecar,
    sidecar_process,
    write_rules,
)
from turnout_rules.settings import Classifier as ClassifierSettings
from turnout_rules.settings import Settings
from turnout_sidecar import classifier_keeper, classifiers
from turnout_sidecar.app import build_app
from turnout_sidecar.guarding import ListenRefused, check_listener, is_loopback
from turnout_sidecar.listening import CannotListen, open_socket, socket_path

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = """
routes:
  - {name: code, match: [code, 函数], priority: 10, target: one/coder}
  - {name: fallback, match: [.*], target: one/general}
"""
UPSTREAMS = "upstreams:\n  one: {base_url: 'http://127.0.0.1:9/v1'}\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", ROUTES, UPSTREAMS)


@pytest.fixture
async def it(rules: Path) -> AsyncIterator[Sidecar]:
    async with sidecar(rules) as running:
        yield running


async def get(url: str, **headers: str) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={k.replace("_", "-"): v for k, v in headers.items()}) as response,
    ):
        return response.status, await response.read()


async def ask_route(it: Sidecar, question: Any) -> tuple[int, dict[str, Any]]:
    data = question if isinstance(question, bytes) else json.dumps(question)
    async with (
        aiohttp.ClientSession() as session,
        session.post(it.url + "/route", data=data) as response,
    ):
        return response.status, json.loads(await response.read())


@pytest.mark.parametrize(
    "question",
    [
        {"text": "帮我写这个函数"},
        {"messages": [{"role": "user", "content": "some code"}]},
        {"body": {"model": "m", "messages": [{"role": "user", "content": "some code"}]}},
        {
            "body": {
                "model": "m",
                "max_tokens": 1,
                "messages": [{"role": "user", "content": "code"}],
            },
            "path": "/v1/messages",
        },
    ],
)
async def test_route_decides_a_text_a_messages_list_or_a_body(
    it: Sidecar, question: dict[str, Any]
) -> None:
    status, decision = await ask_route(it, question)
    assert status == 200
    assert (decision["route"], decision["target"]) == ("code", "one/coder")
    assert decision["layer"] == "rule"
    assert decision["elapsed_us"] > 0
    assert decision["hits"][0]["route"] == "code"


async def test_route_without_a_hit_is_the_default_route(it: Sidecar) -> None:
    _, decision = await ask_route(it, {"text": "你好今天天气如何"})
    assert (decision["route"], decision["layer"]) == ("fallback", "default")


async def test_only_semantic_gives_the_classifiers_word(it: Sidecar) -> None:
    asked = {"text": "code", "attachments": ["image"], "only": "semantic"}
    status, answer = await ask_route(it, asked)
    assert status == 200
    assert answer["route"] is None
    assert "off" in answer["verdict"]["reason"]


BAD_QUESTIONS: list[Any] = [
    b"",
    b"nonsense",
    b"[" * 100_000,
    {},
    {"text": 5},
    {"text": "a", "messages": []},
    {"body": 5},
    {"text": "a", "only": "rules"},
    {"text": "a", "attachments": ["cat"]},
    b'{"text": "\\ud800 hi"}',
    {"body": {}, "path": "/nothing"},
]


@pytest.mark.parametrize("question", BAD_QUESTIONS, ids=range(len(BAD_QUESTIONS)))
async def test_a_bad_question_is_a_400(it: Sidecar, question: Any) -> None:
    status, answer = await ask_route(it, question)
    assert status == 400
    assert answer["error"]["message"]
    assert ("surrogate" in answer["error"]["message"]) == (
        b"ud800" in bytes(str(question), "ascii")
    )


async def test_healthz_says_what_is_in_force(it: Sidecar, rules: Path) -> None:
    status, body = await get(it.url + "/healthz")
    health = json.loads(body)
    assert (status, health["status"]) == (200, "ok")
    assert health["table"]["routes"] == 2
    assert health["classifier"]["state"] == "off"
    (rules / "routes.yaml").write_text("routes: 5")
    async with asyncio.timeout(5):
        while health["status"] != "degraded":
            await asyncio.sleep(0.05)
            status, body = await get(it.url + "/healthz")
            health = json.loads(body)
    assert status == 200
    assert "routes.yaml" in health["table"]["problem"]


async def test_metrics_count_decisions_and_hold_no_prompt(it: Sidecar) -> None:
    await ask_route(it, {"text": "sesame code"})
    status, body = await get(it.url + "/metrics")
    assert status == 200
    row = 'turnout_decisions_total{layer="rule",route="code",source="route_api"} 1.0'
    assert row in body.decode()
    assert b"sesame" not in body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:1"}, 200),
        ({"host": "[::1]:1"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "[nonsense"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": "http://localhost@evil.example"}, 403),
        ({"sec_fetch_site": "odd"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
    ],
)
async def test_other_sites_pages_are_refused(
    it: Sidecar, headers: dict[str, str], status: int
) -> None:
    assert (await get(it.url + "/v1/models", **headers))[0] == status


async def test_off_loopback_a_token_is_demanded(rules: Path) -> None:
    with pytest.raises(ListenRefused, match="TURNOUT_SIDECAR_TOKEN"):
        check_listener("0.0.0.0", {})
    assert check_listener("0.0.0.0", {"TURNOUT_SIDECAR_TOKEN": "t"}) == "t"
    async with sidecar(rules, token="secret") as it:
        assert (await get(it.url + "/v1/models"))[0] == 401
        assert (await get(it.url + "/v1/models", authorization="Bearer wrong"))[0] == 401
        assert (await get(it.url + "/v1/models", authorization="Bearer secret"))[0] == 200
        assert (await get(it.url + "/v1/models", x_turnout_token="secret"))[0] == 200


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("", False),
        ("localhost.evil.example", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, is_own: bool) -> None:
    assert is_loopback(host) == is_own


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not in tmp_path, which may be too deep for a socket.
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setenv("TURNOUT_RUNTIME_DIR", f"{folder}/run")
        check_sockets(Path(folder) / "run" / "sidecar.sock")


def check_sockets(path: Path) -> None:
    open_socket(path).close()
    living = open_socket(path)
    living.listen()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(CannotListen, match="another sidecar"):
        open_socket(path)
    assert socket_path("").name == f"sidecar-{os.getpid()}.sock"
    living.close()
    path.unlink()
    path.write_text("a file")
    with pytest.raises(CannotListen, match="no socket"):
        open_socket(path)


async def test_the_unix_socket_answers_whatever_the_host_header(it: Sidecar) -> None:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(it.socket)) as session,
        session.post("http://sidecar/route", json={"text": "code"}) as response,
    ):
        assert (await response.json())["route"] == "code"


def test_the_process_writes_its_records_and_leaves_nothing(rules: Path, tmp_path: Path) -> None:
    with sidecar_process(rules, tmp_path) as (child, ready):
        assert ready["pid"] == child.pid
        record = tmp_path / "run" / "sidecar.json"
        assert json.loads(record.read_text()) == ready
        socket.create_connection(("127.0.0.1", ready["port"]), 2).close()
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
        assert not record.exists()
        assert not Path(ready["socket"]).exists()


def test_broken_rules_and_a_taken_port_are_said_in_a_line(rules: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with (
            pytest.raises(AssertionError, match=f"port {port}"),
            sidecar_process(rules, tmp_path, "--port", port),
        ):
            pass
    (rules / "routes.yaml").write_text("routes: 5")
    with (
        pytest.raises(AssertionError, match=r"routes\.yaml:1:"),
        sidecar_process(rules, tmp_path),
    ):
        pass


async def test_a_stop_cuts_streams_and_ends_in_time(tmp_path: Path) -> None:
    async def endless(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        while True:
            await response.write(chunk("x"))
            await asyncio.sleep(0.01)

    async with provider(endless) as upstream:
        upstreams = f"upstreams:\n  one: {{base_url: {upstream.url}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams)
        with sidecar_process(rules, tmp_path) as (child, ready):
            url = f"http://127.0.0.1:{ready['port']}/v1/chat/completions"
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
            async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
                await response.content.readany()
                child.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(child.wait, 8) == 0
            async with asyncio.timeout(3):
                await upstream.gone.wait()


async def test_clients_that_leave_are_no_news(tmp_path: Path) -> None:
    async with provider(answering("hello " * 5_000, pieces=200)) as upstream:
        upstreams = f"upstreams:\n  one: {{base_url: {upstream.url}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams)
        with sidecar_process(rules, tmp_path) as (child, ready):
            url = f"http://127.0.0.1:{ready['port']}/v1/chat/completions"
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
            async with aiohttp.ClientSession() as session:
                for _ in range(10):
                    response = await session.post(url, json=body)
                    await response.content.readany()
                    response.close()
            child.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 10) == 0
    assert "Traceback" not in (tmp_path / "sidecar.log").read_text()


async def test_no_log_holds_a_prompt_or_a_key(tmp_path: Path, rules: Path) -> None:
    async with provider(answering("the-answer-text")) as upstream:
        (rules / "upstreams.yaml").write_text(
            f"upstreams:\n  one: {{base_url: {upstream.url}, api_key_env: ONE_KEY}}\n"
        )
        with sidecar_process(rules, tmp_path, "--verbose") as (_, ready):
            url = f"http://127.0.0.1:{ready['port']}"
            headers = {"authorization": "Bearer sk-the-clients-own"}
            async with aiohttp.ClientSession(headers=headers) as session:
                message = {"role": "user", "content": "sesame-prompt-text"}
                for target in ("m", "one/x", "dead/x"):
                    body = {"model": target, "messages": [message]}
                    path = "/v1/chat/completions?key=sk-in-the-query"
                    await (await session.post(url + path, json=body)).read()
                await (await session.post(url + "/route", json={"text": "sesame-prompt"})).read()
            with socket.create_connection(("127.0.0.1", ready["port"]), 2) as raw:
                raw.sendall(b"POST /v1/x HTTP/1.1\r\nauth orization: sk-malformed\x01\r\n\r\n")
                assert raw.recv(100)
        log = (tmp_path / "sidecar.log").read_text()
    assert "target=one/general" in log
    for secret in ("sesame", "sk-", "the-answer-text"):
        assert secret not in log, log


async def test_the_decision_log_is_opt_in_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    settings = f"sidecar: {{decision_log: '{path}'}}\n"
    rules = write_rules(tmp_path / "rules", ROUTES, UPSTREAMS, settings)
    async with sidecar(rules) as it:
        await ask_route(it, {"text": "some code"})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["text"], row["route"]) for row in rows] == [("some code", "code")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_broken_classifier_is_reported_and_the_sidecar_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = write_rules(tmp_path / "rules", ROUTES, UPSTREAMS)
    settings = "classifier: {kind: embedded}\n"
    (rules / "turnout.yaml").write_text(settings)

    fine = classifiers.build_classifier
    is_here = False

    def build(settings: Settings, **_more: Any) -> classifiers.Classifier:
        if not is_here:
            raise ModuleNotFoundError("No module named 'onnxruntime'")
        return fine(msgspec.structs.replace(settings, classifier=ClassifierSettings(kind="off")))

    monkeypatch.setattr(classifiers, "build_classifier", build)
    monkeypatch.setattr(classifier_keeper, "RETRY_S", 0.05)
    async with sidecar(rules) as it:
        async with asyncio.timeout(5):
            await it.service.classifier.settled.wait()
        health = json.loads((await get(it.url + "/healthz"))[1])
        assert health["classifier"]["state"] == "off"
        assert "onnxruntime" in health["classifier"]["reason"]
        assert health["status"] == "ok", "no route waits for it"
        assert (await ask_route(it, {"text": "hi"}))[1]["route"] == "fallback"
        taught = ROUTES.replace(
            "routes:\n", "routes:\n  - {name: taught, examples: [hi], target: one/m}\n"
        )
        (rules / "routes.yaml").write_text(taught)
        await eventually(lambda: bool(it.service.live.current.table.semantic_routes))
        assert json.loads((await get(it.url + "/healthz"))[1])["status"] == "degraded"
        is_here = True
        await eventually(lambda: it.service.decider.classifier is not None)
        health = json.loads((await get(it.url + "/healthz"))[1])
        assert (health["status"], health["classifier"]["state"]) == ("ok", "ready")


async def test_the_openapi_description_names_every_path_of_the_router(it: Sidecar) -> None:
    described = json.loads((await get(it.url + "/openapi.json"))[1])["paths"]
    routed = {
        (route.method, re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.resource.canonical))
        for route in build_app(it.service).router.routes()
        if route.resource is not None and route.method not in ("HEAD", "*")
    }
    shown = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert routed <= shown


async def test_unknown_backends_are_404(it: Sidecar) -> None:
    assert json.loads((await get(it.url + "/backends"))[1]) == {"backends": []}
    assert (await get(it.url + "/backends/nobody/logs"))[0] == 404
