"""Ranks, sounds and pictures through a real proxy."""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx2
import openai
import pytest
from aiohttp import web

from proxy_kit import Seen

SOUND = bytes(range(256)) * 8_000


def http(setup: Any) -> httpx2.Client:
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    return httpx2.Client(proxy=setup.proxy.url, verify=context, trust_env=False, timeout=20.0)


def client(setup: Any) -> openai.OpenAI:
    url = f"{setup.origin.url}/v1"
    return openai.OpenAI(api_key="sk-c", base_url=url, http_client=http(setup), max_retries=0)


async def heard(request: web.Request, seen: Seen) -> web.StreamResponse:
    return web.json_response({"text": "heard"})


def test_the_openai_client_sends_a_sound_to_a_rules_target(setup: Any) -> None:
    setup.other.reply = heard
    with client(setup) as c:
        raw = c.audio.transcriptions.with_raw_response.create(
            model="whisper-1", file=("a.wav", SOUND, "audio/wav"), language="de"
        )
    assert raw.parse().text == "heard"
    assert raw.headers["x-turnout-target"] == "other/ears"
    assert not setup.origin.seen
    seen = setup.other.last
    assert seen.path == "/v1/audio/transcriptions"
    assert seen.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert seen.headers["content-length"] == str(len(seen.body))
    assert seen.body.count(SOUND) == 1
    assert b'name="model"\r\n\r\nears\r\n' in seen.body
    assert b"whisper-1" not in seen.body


def test_ranks_are_moved_by_their_rule(setup: Any) -> None:
    body = {"model": "rerank-v3", "query": "which?", "documents": ["a", "b"], "top_n": 1}
    with http(setup) as c:
        answer = c.post(f"{setup.origin.url}/v2/rerank", json=body)
    assert answer.headers["x-turnout-route"] == "sound"
    seen = setup.other.last
    assert seen.path == "/v1/rerank"
    assert json.loads(seen.body) == body | {"model": "ears"}


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/audio/speech", b'{ "model":"tts-1","input":"debug","voice":"a"}', "application/json"),
        ("/v1/images/generations", b'{"prompt":"forbidden" ,"model":"d"}', "application/json"),
        ("/v1/images/edits", b"--b\r\nodd", "multipart/form-data; boundary=b"),
        ("/v1/audio/translations", SOUND * 2, "multipart/form-data; boundary=b"),
        ("/v1/audio/transcriptions", b"--b\r\nodd", "multipart/form-data; boundary=b"),
    ],
)
def test_what_no_rule_names_passes_untouched(setup: Any, path: str, body: bytes, kind: str) -> None:
    with http(setup) as c:
        answer = c.post(setup.origin.url + path, content=body, headers={"content-type": kind})
    assert answer.status_code == 200
    assert not setup.other.seen
    seen = setup.origin.last
    assert (seen.path, seen.body, seen.headers["content-type"]) == (path, body, kind)
