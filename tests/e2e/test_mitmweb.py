"""What a person sees in mitmweb, by its REST interface and in a real Chromium; and plain `-s`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy_kit import Proxy, proxy, upstream, wait_until, write_rules
from proxy_streams import sse

ROUTES = """
routes:
  - {name: code, match: [debug], priority: 5, target: near/code-model}
  - {name: rest, match: [.*], target: pass}
"""
SCRIPT = Path(__file__).parents[2] / "addon" / "turnout.py"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Any]]:
    folder = tmp_path_factory.mktemp("web")
    with upstream() as near:
        rules = rules_for(folder, near.url)
        with proxy(folder / "p", rules, is_lean=False) as p:
            yield p, near


def rules_for(folder: Path, url: str, **proxy_settings: Any) -> Path:
    settings = {
        "proxy": {"origin": url, "keep_flows": 20, **proxy_settings},
        "classifier": {"kind": "off"},
    }
    return write_rules(
        folder / "rules",
        routes=ROUTES,
        upstreams=f'upstreams: {{near: {{base_url: "{url}/v1"}}}}\n',
        turnout=json.dumps(settings),
    )


def ask(base: str, text: str, **more: Any) -> httpx2.Response:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **more}
    return httpx2.post(f"{base}/v1/chat/completions", json=body, trust_env=False, timeout=20)


def get(p: Proxy, path: str) -> httpx2.Response:
    url = httpx2.URL(p.state["web_url"])
    token = url.params["token"]
    headers = {"authorization": f"Bearer {token}"}
    return httpx2.get(url.join(path), headers=headers, trust_env=False, timeout=10)


def test_a_flow_shows_route_target_layer_time_origin_and_reason(web: Any) -> None:
    p, near = web
    ask(p.base_url, "please debug")
    flow = get(p, "/flows").json()[-1]
    comment = flow["comment"]
    for part in ("code → near/code-model", "rule", "µs", f"was 127.0.0.1:{near.port}", "debug"):
        assert part in comment
    assert flow["marked"] == "🟢"
    ask(p.base_url, "hello")
    assert get(p, "/flows").json()[-1]["marked"] == "⚪"


def test_the_whole_stream_is_visible(web: Any) -> None:
    p, near = web
    near.reply = sse([b"data: %d\n\n" % n for n in range(100)])
    answer = ask(p.base_url, "debug stream", stream=True)
    flow = get(p, "/flows").json()[-1]
    assert get(p, f"/flows/{flow['id']}/response/content.data").content == answer.content


def test_an_aborted_stream_is_visible_as_far_as_it_came(web: Any) -> None:
    p, near = web
    near.reply = sse([b"data: first\n\n"] * 1000, pause_s=0.05)
    body = {"model": "m", "messages": [{"role": "user", "content": "debug abort"}]}
    with (
        httpx2.Client(trust_env=False) as c,
        c.stream("POST", f"{p.base_url}/v1/chat/completions", json=body) as r,
    ):
        next(r.iter_raw())

    def aborted() -> Any:
        flow = get(p, "/flows").json()[-1]
        return flow if "broken off" in flow["comment"] else None

    flow = wait_until(aborted, 5.0)
    content = get(p, f"/flows/{flow['id']}/response/content.data").content
    assert content.startswith(b"data: first\n\n")


def test_old_flows_are_pruned(web: Any) -> None:
    p, near = web
    from proxy_kit import say_ok

    near.reply = say_ok
    for number in range(25):
        ask(p.base_url, f"hello {number}")
    assert len(get(p, "/flows").json()) <= 20


def test_the_explain_command_answers_in_the_command_bar(web: Any) -> None:
    p, _ = web
    url = httpx2.URL(p.state["web_url"])
    # mitmweb compares its cookie with the header: any pair that agrees.
    mark = "0123456789abcdef"
    answer = httpx2.post(
        url.join("/commands/turnout.explain"),
        json={"arguments": ["please debug"]},
        headers={
            "authorization": f"Bearer {url.params['token']}",
            "cookie": f"_mitmproxy_xsrf={mark}",
            "x-xsrftoken": mark,
        },
        trust_env=False,
        timeout=10,
    )
    assert "code" in answer.json()["value"]


@pytest.mark.browser
def test_the_comment_column_is_on_the_page(web: Any, tmp_path: Path) -> None:
    p, _ = web
    ask(p.base_url, "debug for the browser")
    with browser(tmp_path) as session:
        session("POST", "/url", {"url": p.state["web_url"]})

        def text() -> str:
            script = {"script": "return document.body.innerText", "args": []}
            return str(session("POST", "/execute/sync", script))

        wait_until(lambda: "code → near/code-model" in text(), 20.0, "the comment on the page")


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A WebDriver session with Chromium; calls it as (method, path, body) → value."""
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not driver or not chromium:
        pytest.skip("no chromium with chromedriver on this machine")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--disable-dev-shm-usage"]
    flags += ["--window-size=1600,900"]
    options = {"binary": chromium, "args": flags}
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60.0) as c:
        try:

            def is_up() -> bool:
                with contextlib.suppress(httpx2.HTTPError):
                    return bool(c.get("/status").json()["value"]["ready"])
                return False

            wait_until(is_up, 20.0, "chromedriver")
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            made = c.post("/session", json=wanted).json()["value"]
            path = f"/session/{made['sessionId']}"

            def call(method: str, tail: str, body: Any = None) -> Any:
                return c.request(method, path + tail, json=body).json()["value"]

            yield call
            c.delete(path)
        finally:
            process.terminate()
            process.wait(10)


def test_plain_mitmweb_with_the_script_routes_too(tmp_path: Path) -> None:
    with upstream() as near, socket.socket() as one, socket.socket() as two:
        for probe in (one, two):
            probe.bind(("127.0.0.1", 0))
        port, base_url_port = one.getsockname()[1], two.getsockname()[1]
        one.close()
        two.close()
        rules = rules_for(tmp_path, near.url, base_url_port=base_url_port)
        command = [str(Path(sys.executable).parent / "mitmweb"), "-s", str(SCRIPT)]
        command += ["--set", f"turnout_rules={rules}", "--set", f"confdir={tmp_path / 'conf'}"]
        command += ["--set", "web_open_browser=false", "--listen-port", str(port)]
        command += ["--listen-host", "127.0.0.1", "--set", "web_port=0"]
        log = tmp_path / "log"
        environ = os.environ | {"TURNOUT_RUNTIME_DIR": str(tmp_path / "run")}
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=environ)
        try:
            wait_until(
                lambda: "base-URL listener (" in log.read_text(), 30.0, "the reverse listener"
            )
            answer = ask(f"http://127.0.0.1:{base_url_port}", "debug")
            assert answer.headers["x-turnout-target"] == "near/code-model", log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
