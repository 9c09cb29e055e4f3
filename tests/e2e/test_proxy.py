"""Requests through a real proxy with real TLS on both sides: rule, pass, block, keys, logs."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from typing import Any

import openai
import pytest

CLIENT_KEY = "sk-client-key-0000"
OTHER_KEY = "sk-other-provider-key-1111"
SECRET_WORDS = "my secret prompt about pelicans"


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}], **more}


def http_client(setup: Any, kind: str = "Client") -> Any:
    import httpx2

    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    return getattr(httpx2, kind)(
        proxy=setup.proxy.url, verify=context, trust_env=False, timeout=20.0
    )


def client(setup: Any, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=CLIENT_KEY,
        base_url=f"{setup.origin.url}/v1",
        http_client=http_client(setup),
        max_retries=0,
        **more,
    )


def test_a_rule_sends_the_request_to_its_target_with_the_targets_key(setup: Any) -> None:
    with client(setup) as c:
        raw = c.chat.completions.with_raw_response.create(**ask("please debug this"))
    assert raw.parse().choices[0].message.content == "ok from code-model"
    assert raw.headers["x-turnout-route"] == "code"
    assert raw.headers["x-turnout-target"] == "other/code-model"
    assert raw.headers["x-turnout-layer"] == "rule"
    assert not setup.origin.seen
    seen = setup.other.last
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {OTHER_KEY}"
    assert seen.headers["host"] == f"127.0.0.1:{setup.other.port}"
    assert seen.headers["content-length"] == str(len(seen.body))
    assert "transfer-encoding" not in seen.headers
    everything = json.dumps(seen.fields)
    assert CLIENT_KEY not in everything and "x-turnout" not in everything.lower()


def test_what_no_rule_moves_passes_byte_identical_headers_too(setup: Any) -> None:
    body = (
        b'{ "messages": [{"role":"user","content":"hi \\u7ffb"}],\n "model":"gpt-4o" , "n":1.0e0}'
    )
    sent = [
        ("Host", f"localhost:{setup.origin.port}"),
        ("Authorization", f"Bearer {CLIENT_KEY}"),
        ("X-Odd-CASE", "1"),
        ("content-TYPE", "application/json"),
        ("Content-Length", str(len(body))),
    ]
    with http_client(setup) as c:
        url = f"{setup.origin.url}/v1/chat/completions?x=%20y"
        request = c.build_request("POST", url, content=body, headers=sent)
        request.headers = type(request.headers)(sent)
        answer = c.send(request)
    assert answer.headers["x-turnout-target"] == "pass"
    seen = setup.origin.last
    assert seen.body == body
    assert seen.path == "/v1/chat/completions?x=%20y"
    assert seen.fields == sent


def test_a_block_is_a_403_in_the_api_format(setup: Any) -> None:
    with client(setup) as c, pytest.raises(openai.PermissionDeniedError) as caught:
        c.chat.completions.create(**ask("a forbidden thing"))
    assert "Not through here." in str(caught.value)
    assert not setup.origin.seen and not setup.other.seen


def test_a_target_without_its_key_is_refused_and_never_gets_the_clients(setup: Any) -> None:
    with client(setup) as c, pytest.raises(openai.AuthenticationError) as caught:
        c.chat.completions.create(**ask("keyless please"))
    assert "NO_SUCH_KEY" in str(caught.value)


def test_a_local_target_without_the_sidecar_is_a_503_with_retry_after(setup: Any) -> None:
    with client(setup) as c, pytest.raises(openai.InternalServerError) as caught:
        c.chat.completions.create(**ask("do it locally"))
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"]
    assert not setup.origin.seen and not setup.other.seen


def test_the_reverse_listener_needs_no_certificate(setup: Any) -> None:
    with openai.OpenAI(api_key=CLIENT_KEY, base_url=f"{setup.proxy.base_url}/v1") as c:
        assert c.chat.completions.create(**ask("debug")).choices[0].message.content
        c.chat.completions.create(**ask("hello"))
    assert setup.other.last.json["model"] == "code-model"
    assert setup.origin.last.headers["authorization"] == f"Bearer {CLIENT_KEY}"


def test_a_foreign_web_page_cannot_use_the_reverse_listener(setup: Any) -> None:
    with http_client(setup) as c:
        answer = c.post(
            f"{setup.proxy.base_url}/v1/chat/completions",
            json=ask("debug"),
            headers={"origin": "https://evil.example"},
        )
    assert answer.status_code == 403
    assert not setup.other.seen


async def test_the_async_client_streams(setup: Any) -> None:
    from proxy_streams import sse

    setup.other.reply = sse([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'] * 3)
    async with openai.AsyncOpenAI(
        api_key=CLIENT_KEY,
        base_url=f"{setup.origin.url}/v1",
        http_client=http_client(setup, "AsyncClient"),
    ) as c:
        async with asyncio.timeout(20):
            stream = await c.chat.completions.create(**ask("debug"), stream=True)
            pieces = [chunk.choices[0].delta.content async for chunk in stream]
    assert pieces == ["a", "a", "a"]


def test_curl_through_the_environment(setup: Any) -> None:
    environment = setup.proxy.environment() | {"CURL_CA_BUNDLE": str(setup.proxy.bundle)}
    command = ["curl", "-sS", "-m", "15", "-d", json.dumps(ask("debug")), "--noproxy", ""]
    command += ["-H", "content-type: application/json", f"{setup.origin.url}/v1/chat/completions"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    assert b"ok from code-model" in done.stdout


def test_an_http2_client_works(setup: Any) -> None:
    environment = setup.proxy.environment() | {"CURL_CA_BUNDLE": str(setup.proxy.bundle)}
    command = ["curl", "-sS", "--http2", "-m", "15", "-d", json.dumps(ask("debug"))]
    command += ["--noproxy", "", "-H", "content-type: application/json"]
    command += [f"{setup.origin.url}/v1/chat/completions"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False)
    assert b"ok from code-model" in done.stdout


def test_a_websocket_upgrade_on_a_routed_path_is_told_to_fall_back(setup: Any) -> None:
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    with http_client(setup) as c:
        answer = c.get(f"{setup.origin.url}/v1/responses", headers=headers)
    assert answer.status_code == 426
    assert not setup.origin.seen


HOSTS = ["127.0.0.1", "169.254.169.254", "[::1]", "2130706433", "0x7f.1"]
HOSTS += ["100.100.100.200", "metadata.google.internal"]


@pytest.mark.parametrize("host", HOSTS)
def test_the_proxy_is_no_way_to_loopback_and_link_local(setup: Any, host: str) -> None:
    import httpx2

    with http_client(setup) as c:
        answer = c.get(f"http://{host}:{setup.other.port}/v1/models")
        assert answer.status_code in (400, 403)  # 400: mitmproxy reads no IPv6 literal there
        with pytest.raises(httpx2.ProxyError):
            c.get(f"https://{host}:{setup.other.port}/v1/models")
    assert not setup.other.seen


def test_no_prompt_and_no_key_in_the_log(setup: Any) -> None:
    with client(setup) as c:
        c.chat.completions.create(**ask(f"debug {SECRET_WORDS}"))
        c.chat.completions.create(**ask(SECRET_WORDS))
    import socket

    with socket.create_connection(("127.0.0.1", setup.proxy.state["base_url_port"])) as raw:
        raw.sendall(f"POST /v1/x HTTP/1.1\r\nAuthorization: Bearer {CLIENT_KEY}\r\n".encode())
    with socket.create_connection(("127.0.0.1", setup.proxy.state["base_url_port"])) as raw:
        raw.sendall(f"POST /v1/x HTTP/1.1\r\nbad line {CLIENT_KEY}\r\n\r\n".encode())
        raw.recv(1000)
    log = setup.proxy.log
    assert "client disconnect" in log
    for secret in (CLIENT_KEY, OTHER_KEY, "pelicans"):
        assert secret not in log
