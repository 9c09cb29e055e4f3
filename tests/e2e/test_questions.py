"""`POST /route` on every port of Turnout: the article's script as it stands, and a text that is
never sent on, whatever is wrong with the question."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from language_folders import ARTICLE_CONFIG, ARTICLE_ROUTES, write_folder
from proxy_kit import Upstream, proxy, upstream, wait_until, write_rules
from up_kit import up

ARTICLE_TEXTS = {
    "请把这段翻译成英文": "translation",
    "帮我debug这个函数": "code_completion",
    "写一份本周工作总结": "fallback",
    "你好今天天气如何": "fallback",
}
SECRET = "debug the pelicans"
SPELLINGS = [
    *("/route", "/route/", "//route", "/route?a=1&b=%20", "/route/?x", "/Route", "/%72oute"),
    *("/v1/route", "/v1/route/"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(url: str, text: str = SECRET, **more: Any) -> httpx2.Response:
    """What the article's script does."""
    return httpx2.post(url, json={"text": text}, trust_env=False, timeout=20, **more)


@pytest.mark.parametrize("is_lean", [False, True], ids=["mitmweb", "lean"])
def test_the_articles_script_and_files_work_as_they_stand(tmp_path: Path, is_lean: bool) -> None:
    port = free_port()
    config = ARTICLE_CONFIG.replace("port: 8080", f"port: {port}")
    rules = write_folder(tmp_path / "config", routes=ARTICLE_ROUTES, config=config)
    others = ("--base-url-port=0", "--web-port=0", "--sidecar-port=0")
    instance = up(tmp_path / "up", rules, *others, is_lean=is_lean, takes_free_ports=False)
    with instance as running:
        record = running.record
        assert record["proxy_port"] == port
        for text, route in ARTICLE_TEXTS.items():
            answers = []
            for each in (port, record["base_url_port"], record["sidecar_port"]):
                answer = ask(f"http://127.0.0.1:{each}/route", text)
                assert answer.status_code == 200
                assert answer.headers["content-type"].startswith("application/json")
                answers.append({**answer.json(), "elapsed_us": 0})
            assert answers[0]["route"] == route
            assert answers[0] == answers[1] == answers[2]
        running.plane("turnout_sidecar").kill()
        for text, route in ARTICLE_TEXTS.items():
            assert ask(f"http://127.0.0.1:{port}/route", text).json()["route"] == route


def ports(setup: Any) -> list[str]:
    return [setup.proxy.url, setup.proxy.base_url]


def nothing_left(setup: Any) -> bool:
    return not setup.origin.seen and not setup.other.seen and "pelicans" not in setup.proxy.log


@pytest.mark.parametrize("path", SPELLINGS)
def test_however_it_is_spelt_it_is_answered_here(setup: Any, path: str) -> None:
    for base in ports(setup):
        answer = ask(base + path)
        assert (answer.status_code, answer.json()["route"]) == (200, "code")
    assert nothing_left(setup)


def test_in_absolute_form_it_is_answered_here_too(setup: Any) -> None:
    with httpx2.Client(proxy=setup.proxy.url, trust_env=False, timeout=20) as c:
        for base in ports(setup):
            assert c.post(f"{base}/route", json={"text": SECRET}).json()["route"] == "code"
        named = f"http://localhost:{setup.proxy.state['proxy_port']}/route"
        assert c.post(named, json={"text": SECRET}).json()["route"] == "code"
    assert nothing_left(setup)


def test_another_servers_route_is_that_servers(setup: Any) -> None:
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    with httpx2.Client(proxy=setup.proxy.url, verify=context, trust_env=False) as c:
        c.post(f"{setup.origin.url}/route", json={"text": "theirs"})
    assert setup.origin.last.path == "/route"


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "LOCK"])
def test_any_other_method_is_a_405_and_its_body_stays_here(setup: Any, method: str) -> None:
    for base in ports(setup):
        answer = httpx2.request(method, f"{base}/route", content=SECRET, trust_env=False)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert answer.json()["error"]["code"] == "method_not_allowed"
    assert nothing_left(setup)


BAD = [b"", b"pelicans", b"[" * 100_000, b'{"text": 5}', b"{}", b'{"text": "pelicans", "body": 1}']


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_a_question_that_cannot_be_read_is_a_400(setup: Any, body: bytes) -> None:
    for base in ports(setup):
        answer = httpx2.post(f"{base}/route", content=body, trust_env=False, timeout=20)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "bad_question"
    assert nothing_left(setup)


def test_messages_and_whole_bodies_are_asked_like_texts(setup: Any) -> None:
    messages = [{"role": "user", "content": SECRET}]
    for question in ({"messages": messages}, {"body": {"model": "m", "messages": messages}}):
        answer = httpx2.post(f"{setup.proxy.url}/route", json=question, trust_env=False)
        row = answer.json()
        assert (row["route"], row["target"], row["layer"]) == ("code", "other/code-model", "rule")
        assert row["hits"] == [{"route": "code", "pattern": "debug"}]
    assert nothing_left(setup)


def test_a_foreign_web_page_may_not_ask_and_a_local_one_may(setup: Any) -> None:
    for base in ports(setup):
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
        ):
            assert ask(f"{base}/route", headers=headers).status_code == 403
        local = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}
        assert ask(f"{base}/route", headers=local).status_code == 200
    assert nothing_left(setup)


ROUTES = """
routes:
  - {name: code, match: [debug], priority: 5, target: near/code-model}
  - {name: report, target: near/summary-model, examples: [write the weekly report]}
  - {name: rest, match: [.*], target: pass}
"""


@pytest.fixture
def near() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


def rules_at(folder: Path, near: Upstream, proxy_settings: dict[str, Any]) -> Path:
    settings = {"proxy": {"origin": near.url, **proxy_settings}}
    upstreams = f'upstreams: {{near: {{base_url: "{near.url}/v1"}}}}\n'
    return write_rules(folder, routes=ROUTES, upstreams=upstreams, turnout=json.dumps(settings))


def away(folder: Path, rules: Path, **more: Any) -> Any:
    """A proxy whose sidecar does not answer."""
    arguments = ("--sidecar", "http://127.0.0.1:1", "--gateway", "http://127.0.0.1:1")
    return proxy(folder, rules, *arguments, **more)


def test_without_the_sidecar_the_rules_answer_and_say_why(tmp_path: Path, near: Upstream) -> None:
    with away(tmp_path / "p", rules_at(tmp_path / "rules", near, {})) as p:
        for base in (p.url, p.base_url):
            assert ask(f"{base}/route").json()["route"] == "code"
            row = ask(f"{base}/route", "the weekly thing").json()
            assert (row["route"], row["layer"]) == ("rest", "default")
            assert "sidecar" in row["reason"]
            word = httpx2.post(
                f"{base}/route", json={"text": "x", "only": "semantic"}, trust_env=False
            ).json()
            assert word["route"] is None and "sidecar" in word["verdict"]["reason"]
        assert not near.seen


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_the_limit_is_a_413(tmp_path: Path, near: Upstream, is_chunked: bool) -> None:
    rules = rules_at(tmp_path / "rules", near, {"max_body_bytes": 2048})
    with away(tmp_path / "p", rules) as p:
        for base in (p.url, p.base_url):
            for size in (3_000, 30_000):
                body = json.dumps({"text": "x" * size}).encode()
                content: Any = iter([body[:100], body[100:]]) if is_chunked else body
                answer = httpx2.post(f"{base}/route", content=content, trust_env=False)
                assert answer.status_code == 413
        assert not near.seen


def test_on_a_listener_for_others_the_password_is_asked_and_the_base_url_port_asks_none(
    tmp_path: Path, near: Upstream
) -> None:
    rules = rules_at(tmp_path / "rules", near, {"listen_host": "0.0.0.0", "auth": "LOGIN"})
    with away(tmp_path / "p", rules, environ={"LOGIN": "me:secret"}) as p:
        assert ask(f"{p.url}/route").status_code == 407
        login = {"proxy-authorization": f"Basic {base64.b64encode(b'me:secret').decode()}"}
        assert ask(f"{p.url}/route", headers=login).json()["route"] == "code"
        assert ask(f"{p.base_url}/route").json()["route"] == "code"
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        url = f"{p.base_url}/v1/chat/completions"
        assert httpx2.post(url, json=body, trust_env=False).status_code == 200


def test_behind_a_company_proxy_it_is_answered_here_too(tmp_path: Path, near: Upstream) -> None:
    with upstream() as company:
        rules = rules_at(tmp_path / "rules", near, {"upstream_proxy": company.url})
        with away(tmp_path / "p", rules) as p, httpx2.Client(proxy=p.url, trust_env=False) as c:
            for base in (p.url, p.base_url):
                assert ask(f"{base}/route").json()["route"] == "code"
                assert c.post(f"{base}/route", json={"text": SECRET}).json()["route"] == "code"
            assert not near.seen and not company.seen


def test_replayed_in_mitmweb_it_does_not_reach_the_origin(tmp_path: Path, near: Upstream) -> None:
    with away(tmp_path / "p", rules_at(tmp_path / "rules", near, {}), is_lean=False) as p:
        for base in (p.url, p.base_url):
            ask(f"{base}/route")
        web = httpx2.URL(p.state["web_url"])
        headers = {"authorization": f"Bearer {web.params['token']}"}
        headers |= {"cookie": "_mitmproxy_xsrf=abcd", "x-xsrftoken": "abcd"}
        with httpx2.Client(trust_env=False, headers=headers, timeout=20) as c:
            flows = c.get(web.join("/flows")).json()
            assert [flow["request"]["port"] for flow in flows] == [1, 1]
            for flow in flows:
                assert "code → near/code-model" in flow["comment"]
                assert c.post(web.join(f"/flows/{flow['id']}/replay")).status_code == 200

            def have_ended() -> bool:
                return all(f.get("error") or near.seen for f in c.get(web.join("/flows")).json())

            wait_until(have_ended, 10, "the replays end")
        assert not near.seen
