"""What lies beside the proxy: the sidecar's classifier and gateway, and other hosts."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web

from proxy_kit import Seen, make_certificates, proxy, say_ok, upstream, wait_until, write_rules

ROUTES = """
routes:
  - {name: local, match: [locally], target: managed/tiny}
  - {name: summary, examples: ["summarise this", "sum it up"], target: near/summary-model}
  - {name: rest, match: [.*], target: near/default-model}
"""
UPSTREAMS = """
upstreams:
  near: {{base_url: "{url}/v1"}}
  managed: {{engine: llamacpp, models: {{tiny: {{model_path: smollm2}}}}}}
"""


def ask(base: str, text: str, **headers: str) -> httpx2.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    url = f"{base}/v1/chat/completions"
    return httpx2.post(url, json=body, headers=headers, trust_env=False, timeout=20)


async def classifier(request: web.Request, seen: Seen) -> web.StreamResponse:
    """A stand-in for the sidecar: summaries are recognised, `slow` takes too long."""
    if request.path != "/route":
        return await say_ok(request, seen)
    text = seen.json["text"]
    if "slow" in text:
        import asyncio

        await asyncio.sleep(5)
    route = "summary" if "report" in text else None
    verdict = {"route": route, "probability": 0.9, "threshold": 0.5}
    return web.json_response({"route": route, "verdict": verdict, "table": "x"})


def test_the_classifier_decides_what_no_rule_does_and_its_silence_costs_the_default(
    tmp_path: Path,
) -> None:
    with upstream() as near, upstream(classifier) as sidecar:
        rules = write_rules(
            tmp_path / "rules", routes=ROUTES, upstreams=UPSTREAMS.format(url=near.url)
        )
        arguments = ("--sidecar", sidecar.url, "--gateway", sidecar.url)
        with proxy(tmp_path / "p", rules, *arguments) as p:
            hit = ask(p.base_url, "the weekly report please")
            assert hit.headers["x-turnout-layer"] == "semantic"
            assert near.last.json["model"] == "summary-model"
            late = ask(p.base_url, "a slow one")
            assert late.headers["x-turnout-layer"] == "default"
            local = ask(p.base_url, "locally", authorization="Bearer sk-client")
            assert local.status_code == 200
            seen = sidecar.last
            assert seen.headers["x-turnout-targets"] == "managed/tiny"
            assert seen.headers["x-turnout-route"] == "local"
            assert seen.json["model"] == "m"
            assert "sk-client" not in json.dumps(seen.fields)


def test_a_dead_sidecar_costs_only_the_semantic_layer(tmp_path: Path) -> None:
    with upstream() as near:
        rules = write_rules(
            tmp_path / "rules", routes=ROUTES, upstreams=UPSTREAMS.format(url=near.url)
        )
        arguments = ("--sidecar", "http://127.0.0.1:1", "--gateway", "http://127.0.0.1:1")
        with proxy(tmp_path / "p", rules, *arguments) as p:
            for number in range(6):
                answer = ask(p.base_url, f"the weekly report {number}")
                assert answer.headers["x-turnout-target"] == "near/default-model"
            assert ask(p.base_url, "locally").status_code == 503


def test_other_hosts_are_tunnelled_with_their_own_certificate(tmp_path: Path) -> None:
    """Another host is this machine by its own address: loopback is refused by design."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but loopback")
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    ca, server = make_certificates(tmp_path, (address,))
    code = (
        "import http.server,ssl,sys\n"
        f"s=http.server.HTTPServer(({address!r},0),http.server.SimpleHTTPRequestHandler)\n"
        f"c=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH);c.load_cert_chain({str(server)!r})\n"
        "s.socket=c.wrap_socket(s.socket,server_side=True)\n"
        f"open({str(tmp_path / 'port')!r},'w').write(str(s.server_port))\n"
        "s.serve_forever()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (tmp_path / "port").exists() and (tmp_path / "port").read_text(), 10)
        port = (tmp_path / "port").read_text()
        rules = write_rules(
            tmp_path / "rules", routes=ROUTES, upstreams=UPSTREAMS.format(url="http://127.0.0.1:1")
        )
        with proxy(tmp_path / "p", rules) as p:
            context = ssl.create_default_context(cafile=str(ca))
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            with httpx2.Client(proxy=p.url, verify=context, trust_env=False) as c:
                answer = c.get(f"https://{address}:{port}/")
            assert answer.status_code == 200
            assert not [name for name in answer.headers if name.startswith("x-turnout")]
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("password", ["", "me:secret"])
def test_a_listener_for_other_machines_demands_a_password(tmp_path: Path, password: str) -> None:
    settings = 'proxy: {listen_host: "0.0.0.0", auth: PROXY_LOGIN, intercept: [localhost]}\n'
    rules = write_rules(
        tmp_path / "rules",
        routes=ROUTES,
        upstreams=UPSTREAMS.format(url="http://127.0.0.1:1"),
        turnout=settings,
    )
    if not password:
        with (
            pytest.raises(AssertionError, match=r"user:password"),
            proxy(tmp_path / "p", rules),
        ):
            pass
        return
    with proxy(tmp_path / "p", rules, environ={"PROXY_LOGIN": password}) as p:
        with pytest.raises(httpx2.ProxyError, match="407"):
            httpx2.Client(proxy=p.url, trust_env=False).get("https://localhost:1/")
        known: Any = httpx2.Client(proxy=p.url.replace("//", "//me:secret@"), trust_env=False)
        with pytest.raises(httpx2.HTTPError) as caught:
            known.get("https://localhost:1/")
        assert "407" not in str(caught.value)
        assert "secret" not in p.log


def test_the_password_stays_while_the_listener_does_whatever_is_saved(tmp_path: Path) -> None:
    upstreams = UPSTREAMS.format(url="http://127.0.0.1:1")
    rules = write_rules(tmp_path / "rules", routes=ROUTES, upstreams=upstreams)
    environ = {"TURNOUT_PROXY_AUTH": "me:secret"}
    with proxy(tmp_path / "p", rules, "--listen-host", "0.0.0.0", environ=environ) as p:
        known = httpx2.Client(proxy=p.url.replace("//", "//me:secret@"), trust_env=False)
        assert known.get("http://localhost:1/").status_code == 403
        write_rules(rules, turnout="proxy: {listen_host: 127.0.0.1}\n")
        wait_until(lambda: "rules reloaded" in p.log, 10)
        assert (
            httpx2.Client(proxy=p.url, trust_env=False).get("http://localhost:1/").status_code
            == 407
        )
        assert known.get("http://localhost:1/").status_code == 403


def test_a_sidecar_that_demands_a_token_is_given_it_and_nobody_else_is(tmp_path: Path) -> None:
    with upstream() as near, upstream(classifier) as sidecar:
        rules = write_rules(
            tmp_path / "rules", routes=ROUTES, upstreams=UPSTREAMS.format(url=near.url)
        )
        arguments = ("--sidecar", sidecar.url, "--gateway", sidecar.url)
        environ = {"TURNOUT_SIDECAR_TOKEN": "the-token"}
        with proxy(tmp_path / "p", rules, *arguments, environ=environ) as p:
            assert ask(p.base_url, "the weekly report please").status_code == 200
            assert sidecar.last.headers["x-turnout-token"] == "the-token"
            assert ask(p.base_url, "locally").status_code == 200
            assert sidecar.last.path == "/v1/chat/completions"
            assert sidecar.last.headers["x-turnout-token"] == "the-token"
            assert "x-turnout-token" not in near.last.headers
            assert "the-token" not in p.log
