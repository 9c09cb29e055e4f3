"""The classifiers behind HTTP, against servers on loopback that answer as the real ones do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sidecar.classifier_tables import ENGLISH, table_of
from turnout_rules.decision import Verdict
from turnout_rules.settings import Classifier as ClassifierSettings
from turnout_rules.settings import Settings
from turnout_sidecar.classifiers import ClassifierError, build_classifier
from turnout_sidecar.classifiers.chat import confidence
from turnout_sidecar.model_store import ensure

DATA = Path(__file__).parents[1] / "data"
RECORDED = [json.loads(line) for line in (DATA / "systemone.jsonl").read_text().splitlines()]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _server(path: str, handler: Handler) -> TestServer:
    app = web.Application()
    app.router.add_post(path, handler)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    return server


def _settings(kind: Any, url: str, **more: Any) -> Settings:
    return Settings(classifier=ClassifierSettings(kind=kind, url=url, timeout_ms=1_000, **more))


def _systemone(choice: str, **probabilities: float) -> dict[str, Any]:
    return {"answers": {"route": {"choice": choice, "probabilities": probabilities}}}


async def _classified(handler: Handler, kind: str, path: str, **more: Any) -> Any:
    server = await _server(path, handler)
    classifier = build_classifier(_settings(kind, str(server.make_url("/v1")), **more))
    try:
        await classifier.prepare(table_of(ENGLISH))
        return await classifier.classify("will it rain tomorrow")
    finally:
        await classifier.close()
        await server.close()


async def test_systemone_is_asked_one_question_with_a_way_out_and_the_pinned_model() -> None:
    seen: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.json_response(_systemone("weather", weather=0.91, code=0.05, none=0.04))

    verdict = await _classified(answer, "systemone", "/v1/systemone", model="laya-multi")
    assert verdict.is_accepted and verdict.route == "weather"
    assert (verdict.probability, verdict.runner_up, verdict.out_of_scope) == (0.91, "code", 0.04)
    question = seen[0]["questions"]["route"]
    assert seen[0]["model"] == "laya-multi"
    assert seen[0]["state"] == {"request": "will it rain tomorrow", "language": "en"}
    assert set(question["criteria"]) == {*ENGLISH, "none"}


@pytest.mark.parametrize("seen", RECORDED, ids=[seen["source"] for seen in RECORDED])
async def test_what_decision_models_were_seen_to_answer(seen: dict[str, Any]) -> None:
    answer = json.loads(json.dumps(seen["answer"]))
    options = ["billing", "tech"]
    if "answers" in answer:
        said = answer["answers"].pop(seen["question"])
        answer["answers"]["route"] = said
        options = list(said["probabilities"])

    async def reply(request: web.Request) -> web.Response:
        asked = (await request.json())["questions"]
        assert set(asked["route"]["criteria"]) == {*options, "none"}
        return web.json_response(answer, status=seen["status"])

    server = await _server("/v1/systemone", reply)
    classifier = build_classifier(_settings("systemone", str(server.make_url("/v1"))))
    await classifier.prepare(table_of({name: (f"about {name}",) for name in options}))
    verdict = await classifier.classify("I was charged twice this month")
    await classifier.close()
    await server.close()
    if "route" in seen:
        found = (verdict.route, verdict.probability, verdict.runner_up)
        assert found == (seen["route"], seen["probability"], seen["runner_up"])
        assert verdict.is_accepted
    else:
        assert verdict.route is None and seen["reason"] in verdict.reason


@pytest.mark.parametrize("kind", ["systemone", "chat"])
async def test_language_and_attachments_are_told_and_kept_apart_in_the_cache(kind: Any) -> None:
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        if kind == "chat":
            said = {"message": {"content": '{"route": "weather"}'}}
            return web.json_response({"choices": [said]})
        return web.json_response(_systemone("weather", weather=0.9, none=0.1))

    path = "/v1/systemone" if kind == "systemone" else "/v1/chat/completions"
    server = await _server(path, answer)
    classifier = build_classifier(_settings(kind, str(server.make_url("/v1"))))
    await classifier.prepare(table_of(ENGLISH))
    for attachments in ((), ("image",), ("audio", "image"), ("image",)):
        await classifier.classify("明天会下雨吗", attachments)
    await classifier.close()
    await server.close()
    assert len(bodies) == 3
    if kind == "systemone":
        said = {"request": "明天会下雨吗", "language": "zh"}
        states = [body["state"] for body in bodies]
        attached = [{}, {"attachments": "image"}, {"attachments": "audio, image"}]
        assert states == [{**said, **more} for more in attached]
    else:
        assert [body["messages"][-1]["content"] for body in bodies] == [
            "Request: 明天会下雨吗",
            "Request (with image): 明天会下雨吗",
            "Request (with audio, image): 明天会下雨吗",
        ]


async def test_none_of_these_names_no_route() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(_systemone("none", weather=0.2, none=0.8))

    verdict = await _classified(answer, "systemone", "/v1/systemone")
    assert verdict.route is None
    assert verdict.out_of_scope == 0.8
    assert verdict.runner_up == "weather"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 200),
        ("[]", 200),
        ("{}", 200),
        ('{"answers": {"route": {"choice": "weather", "probabilities": {}}}}', 200),
        ('{"answers": {"route": {"choice": 7, "probabilities": {"7": "x"}}}}', 200),
        ("{}", 501),
        ("[" * 100_000, 200),
    ],
)
async def test_nonsense_from_the_server_is_a_verdict_without_a_route(
    body: str, status: int
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=body, status=status, content_type="application/json")

    verdict = await _classified(answer, "systemone", "/v1/systemone")
    assert verdict.route is None
    assert "unusable" in verdict.reason


async def test_a_late_server_costs_the_deadline_and_no_more() -> None:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    server = await _server("/v1/systemone", answer)
    settings = ClassifierSettings(kind="systemone", url=str(server.make_url("")), timeout_ms=50)
    classifier = build_classifier(Settings(classifier=settings))
    await classifier.prepare(table_of(ENGLISH))
    async with asyncio.timeout(2):
        verdict = await classifier.classify("hello")
    assert verdict.route is None and "late" in verdict.reason
    await classifier.close()
    await server.close()


async def test_an_unreachable_server_is_a_verdict_without_a_route() -> None:
    classifier = build_classifier(_settings("systemone", "http://127.0.0.1:9"))
    await classifier.prepare(table_of(ENGLISH))
    verdict = await classifier.classify("hello")
    assert verdict.route is None and "unreachable" in verdict.reason
    await classifier.close()


async def test_more_routes_than_systemone_can_weigh_are_refused() -> None:
    classifier = build_classifier(_settings("systemone", "http://127.0.0.1:9"))
    many = {f"route{i}": ("example",) for i in range(12)}
    with pytest.raises(ClassifierError, match="11 routes at most"):
        await classifier.prepare(table_of(many))


async def test_chat_is_constrained_to_the_names_and_reads_log_probabilities() -> None:
    seen: list[dict[str, Any]] = []
    tokens = [('{"', 0.0), ('route":', 0.0), (' "', 0.0), ("wea", -0.1), ("ther", -0.1), ('"}', 0)]

    async def answer(request: web.Request) -> web.Response:
        seen.append(await request.json())
        said = {
            "message": {"content": "".join(t for t, _ in tokens)},
            "logprobs": {"content": [{"token": t, "logprob": p} for t, p in tokens]},
        }
        return web.json_response({"choices": [said]})

    verdict = await _classified(answer, "chat", "/v1/chat/completions", model="small")
    assert verdict.route == "weather"
    assert verdict.probability == pytest.approx(0.8187, abs=1e-3)
    schema = seen[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["route"]["enum"] == [*ENGLISH, "none"]
    assert seen[0]["temperature"] == 0


async def test_chat_without_log_probabilities_is_asked_again_without_them() -> None:
    async def answer(request: web.Request) -> web.Response:
        if "logprobs" in await request.json():
            return web.json_response({"error": "unknown field"}, status=400)
        said = {"message": {"content": json.dumps({"route": "code"})}}
        return web.json_response({"choices": [said]})

    verdict = await _classified(answer, "chat", "/v1/chat/completions")
    assert verdict.route == "code" and verdict.is_accepted
    assert "no log-probabilities" in verdict.reason


async def test_a_route_that_was_not_offered_is_not_taken() -> None:
    async def answer(request: web.Request) -> web.Response:
        said = {"message": {"content": json.dumps({"route": "root_shell"})}}
        return web.json_response({"choices": [said]})

    verdict = await _classified(answer, "chat", "/v1/chat/completions")
    assert verdict.route is None and "not offered" in verdict.reason


def test_only_the_tokens_of_the_name_count_for_the_confidence() -> None:
    assert confidence([('{"route": "', -9.0), ("code", 0.0), ('"}', -9.0)], "code") == 1.0


async def test_off_loads_nothing_and_says_so() -> None:
    classifier = build_classifier(Settings(classifier=ClassifierSettings(kind="off")))
    await classifier.prepare(table_of(ENGLISH))
    verdict = await classifier.classify("hello")
    assert verdict.route is None and "switched off" in verdict.reason


def test_a_missing_url_or_key_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClassifierError, match="needs `url`"):
        build_classifier(_settings("chat", ""))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ClassifierError, match="NO_SUCH_KEY"):
        build_classifier(_settings("chat", "http://127.0.0.1:9", api_key_env="NO_SUCH_KEY"))


@pytest.fixture
async def llama_server() -> AsyncIterator[str]:
    """The base URL of a real llama.cpp server with the small chat model."""
    script = (
        "import sys, time, xllamacpp as x\n"
        "p = x.CommonParams(); p.model.path = sys.argv[1]; p.hostnames = ['127.0.0.1']\n"
        "p.port = int(sys.argv[2]); p.n_ctx = 2048; p.n_parallel = 1; p.cpuparams.n_threads = 1\n"
        "s = x.Server(p); time.sleep(300)\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, str(ensure("smollm2")), str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{url}/health") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.1)
        yield url
    finally:
        process.kill()
        await process.wait()


async def _asked(kind: Any, url: str, text: str) -> Verdict:
    settings = ClassifierSettings(kind=kind, url=url, model="smollm2", timeout_ms=30_000)
    classifier = build_classifier(Settings(classifier=settings))
    try:
        await classifier.prepare(table_of(ENGLISH))
        return await classifier.classify(text)
    finally:
        await classifier.close()


@pytest.mark.local
async def test_a_real_chat_model_names_one_of_the_routes(llama_server: str) -> None:
    verdict = await _asked("chat", f"{llama_server}/v1", "what can I cook with rice and fish")
    assert verdict.route == "cooking"
    assert 0.0 < verdict.probability <= 1.0
    assert "log-probabilities" not in verdict.reason


@pytest.mark.local
async def test_a_real_llama_server_with_a_chat_model_is_no_decision_model(
    llama_server: str,
) -> None:
    verdict = await _asked("systemone", llama_server, "what can I cook with rice and fish")
    assert verdict.route is None
    assert verdict.reason == (
        "systemone classifier unusable: status 501, the server's model is no decision model"
    )
