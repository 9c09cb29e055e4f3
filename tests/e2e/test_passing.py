"""`target: pass` with `fallback`, through both planes, to an origin behind TLS."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from proxy_kit import Proxy, Seen, Upstream, make_certificates, proxy, say_ok, upstream, write_rules
from proxy_streams import sse
from sidecar_process import SidecarProcess, sidecar_process

KEY = "sk-client-key-very-secret"
ROUTES = "routes:\n  - {name: kept, match: [.*], target: pass, fallback: [other/model]}\n"
CONTENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'


@dataclass
class Planes:
    proxy: Proxy
    sidecar: SidecarProcess
    origin: Upstream
    other: Upstream

    def ask(self, words: str, *, is_reverse: bool = False, **more: Any) -> httpx2.Response:
        context = ssl.create_default_context(cafile=str(self.proxy.bundle))
        base = self.proxy.base_url if is_reverse else self.origin.url
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": words}], **more}
        with httpx2.Client(
            proxy=None if is_reverse else self.proxy.url,
            verify=context,
            trust_env=False,
            timeout=20,
        ) as client:
            headers = {"authorization": f"Bearer {KEY}", "x-app": "cli"}
            return client.post(f"{base}/v1/chat/completions?beta=1", json=body, headers=headers)


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[Planes]:
    ca, server = make_certificates(tmp_path, ("localhost", "127.0.0.1"))
    with upstream(server_file=server) as origin, upstream() as other:
        rules = write_rules(
            tmp_path / "rules",
            routes=ROUTES,
            upstreams=f"upstreams:\n  other: {{base_url: '{other.url}/v1'}}\n",
            turnout=f"""
proxy: {{intercept: [localhost], origin: '{origin.url}', upstream_ca: '{ca}'}}
classifier: {{kind: 'off'}}
""",
        )
        with sidecar_process(tmp_path / "s", rules) as sidecar:
            arguments = ("--sidecar", sidecar.url, "--gateway", sidecar.url)
            with proxy(tmp_path / "p", rules, *arguments) as running:
                yield Planes(running, sidecar, origin, other)


async def overloaded(request: web.Request, seen: Seen) -> web.StreamResponse:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return web.json_response(error, status=529)


@pytest.mark.parametrize("is_reverse", [False, True])
def test_an_overloaded_origin_is_stood_in_for_and_gets_its_own_key_alone(
    planes: Planes, is_reverse: bool
) -> None:
    answer = planes.ask("first", is_reverse=is_reverse)
    assert (answer.status_code, answer.headers["x-turnout-target"]) == (200, "pass")
    assert planes.origin.last.headers["authorization"] == f"Bearer {KEY}"
    assert planes.origin.last.headers["x-app"] == "cli"
    assert planes.origin.last.headers["host"] == planes.origin.url.removeprefix("https://")
    assert planes.origin.last.path == "/v1/chat/completions?beta=1"
    assert planes.other.seen == []

    planes.origin.reply = overloaded
    answer = planes.ask("second", is_reverse=is_reverse)
    assert (answer.status_code, answer.headers["x-turnout-target"]) == (200, "other/model")
    assert answer.headers["x-turnout-attempts"] == "pass=529, other/model=200"
    assert KEY not in json.dumps(planes.other.last.fields)
    assert planes.other.last.json["model"] == "model"

    planes.origin.reply = say_ok
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    answer = planes.ask("second", is_reverse=is_reverse, messages=history)
    assert answer.headers["x-turnout-target"] == "other/model"
    assert planes.ask("third", is_reverse=is_reverse).headers["x-turnout-target"] == "pass"
    assert KEY not in planes.proxy.log + planes.sidecar.log


def test_a_stream_of_the_origin_arrives_to_the_byte(planes: Planes) -> None:
    planes.origin.reply = sse([CONTENT])
    answer = planes.ask("hi", stream=True)
    assert answer.content == CONTENT + b"data: [DONE]\n\n"
    planes.origin.reply = sse([])
    planes.other.reply = sse([CONTENT])
    answer = planes.ask("nothing comes", stream=True)
    assert answer.headers["x-turnout-attempts"] == "pass=empty, other/model=200"
    assert answer.content == CONTENT + b"data: [DONE]\n\n"


def test_without_the_sidecar_it_passes_as_ever(planes: Planes) -> None:
    planes.sidecar.kill()
    planes.origin.reply = overloaded
    assert planes.ask("hi").status_code == 529
    assert planes.other.seen == []
