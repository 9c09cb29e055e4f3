"""The whole product on real parts: the real openai client through `HTTPS_PROXY`, the proxy, the
sidecar with its sentence encoder, a real llama.cpp engine, and two loopback providers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from proxy_kit import (
    Proxy,
    Upstream,
    make_certificates,
    proxy,
    upstream,
    wait_until,
    write_rules,
)
from sidecar_process import SidecarProcess, sidecar_process
from turnout_sidecar import model_store

pytestmark = [pytest.mark.local, pytest.mark.timeout(240)]

CLIENT_KEY = "sk-client-key-0000"
SECRET_WORDS = "pelicans in the translate attic"

ROUTES = """
routes:
  - name: stop
    match: [forbidden]
    priority: 20
    target: block
    message: Not through here.
  - name: translation
    match: [translate, 翻译]
    priority: 10
    target: local/tiny
  - name: remote
    match: [remotely]
    priority: 9
    target: second/far-model
  - name: cooking
    description: recipes and cooking
    target: second/cook-model
    examples: [how do I boil an egg, a recipe for lentil soup, 怎么做红烧肉, 这道菜放多少盐,
               how long to roast a chicken, what can I bake with apples]
  - name: travel
    description: trips, trains, hotels
    target: second/travel-model
    examples: [find me a train to Vienna, which hotel is near the airport, 去北京的机票多少钱,
               plan three days in Lisbon, is the ferry running today, 推荐一个周末旅游的地方]
  - name: rest
    match: [.*]
    target: pass
"""


@dataclass
class Whole:
    """What a test works with."""

    proxy: Proxy
    sidecar: SidecarProcess
    origin: Upstream
    second: Upstream
    rules: Path

    @property
    def base_url(self) -> str:
        return f"{self.origin.url}/v1"

    def backend(self) -> dict[str, Any]:
        """The sidecar's own word about the engine."""
        with urllib.request.urlopen(f"{self.sidecar.url}/backends", timeout=10) as answer:
            rows: list[dict[str, Any]] = json.load(answer)["backends"]
        return next(row for row in rows if row["name"] == "local/tiny")


@contextlib.contextmanager
def everything(folder: Path) -> Iterator[Whole]:
    ca, server = make_certificates(folder, ("localhost", "127.0.0.1"))
    with upstream(server_file=server) as origin, upstream() as second:
        rules = write_rules(
            folder / "rules",
            routes=ROUTES,
            upstreams=f"""
upstreams:
  local:
    engine: llamacpp
    models:
      tiny: {{model_path: smollm2, max_num_seqs: 2, max_model_len: 2048, args: [-t, "1"]}}
  second: {{base_url: "{second.url}/v1"}}
""",
            turnout=f"""
proxy:
  intercept: [localhost]
  origin: {origin.url}
  anthropic_origin: {origin.url}
  upstream_ca: {ca}
""",
        )
        with sidecar_process(folder / "s", rules) as sidecar:
            arguments = ("--sidecar", sidecar.url, "--gateway", sidecar.url)
            with proxy(folder / "p", rules, *arguments) as p:
                yield Whole(p, sidecar, origin, second, rules)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    need_models()
    with everything(tmp_path_factory.mktemp("whole")) as whole:
        yield whole


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Whole]:
    """For tests that break things."""
    need_models()
    with everything(tmp_path) as whole:
        yield whole


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tool sees: `HTTPS_PROXY` and the bundle, nothing else."""
    name = "own" if "own" in request.fixturenames else "shared"
    whole: Whole = request.getfixturevalue(name)
    for variable in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", whole.proxy.url)
    monkeypatch.setenv("SSL_CERT_FILE", str(whole.proxy.bundle))
    whole.origin.seen.clear()
    whole.second.seen.clear()


def need_models() -> None:
    pytest.importorskip("xllamacpp", reason="the `local` extra is not installed")
    for name in ("smollm2", "sentence-encoder"):
        if model_store.path_of(name) is None:
            pytest.skip(f"the model {name} is not here: run `turnout models pull`")


def client(whole: Whole, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=CLIENT_KEY, base_url=whole.base_url, timeout=90, max_retries=0, **more
    )


def ask(whole: Whole, text: str, **more: Any) -> Any:
    """One chat; the raw response."""
    with client(whole) as c:
        return c.chat.completions.with_raw_response.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": text}],
            max_tokens=8,
            **more,
        )


def seen_at(response: Any) -> tuple[str, str, str]:
    headers = response.headers
    return tuple(headers.get(f"x-turnout-{n}", "") for n in ("route", "target", "layer"))  # type: ignore[return-value]


# -- where requests go ----------------------------------------------------------------------------


def test_a_rule_hit_is_answered_by_the_local_engine(shared: Whole) -> None:
    answer = ask(shared, "translate: good morning")
    assert seen_at(answer) == ("translation", "local/tiny", "rule")
    assert answer.parse().choices[0].message.content
    assert not shared.origin.seen and not shared.second.seen


def test_a_streamed_answer_comes_token_by_token(shared: Whole) -> None:
    with client(shared) as c:
        stream = c.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": "translate: one two three"}],
            max_tokens=12,
            stream=True,
        )
        chunks = list(stream)
    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 3


async def test_async_clients_are_answered_side_by_side(shared: Whole) -> None:
    async with openai.AsyncOpenAI(
        api_key=CLIENT_KEY, base_url=shared.base_url, timeout=90, max_retries=0
    ) as c:
        asked = [
            c.chat.completions.create(
                model="gpt-4o-mini",
                messages=[{"role": "user", "content": f"translate {n}"}],
                max_tokens=4,
            )
            for n in range(6)
        ]
        answers = await asyncio.gather(*asked)
    assert all(a.choices[0].message.content for a in answers)


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("how should I fry potatoes", "cooking"),
        ("番茄炒蛋怎么做", "cooking"),
        ("book a bus to Prague", "travel"),
    ],
)
def test_a_semantic_hit_goes_to_the_route_whose_examples_it_resembles(
    shared: Whole, text: str, route: str
) -> None:
    answer = ask(shared, text)
    assert seen_at(answer)[::2] == (route, "semantic")
    assert shared.second.last.json["model"] == {"cooking": "cook-model"}.get(route, "travel-model")
    assert CLIENT_KEY not in json.dumps(shared.second.last.fields)


def test_what_fits_nothing_passes_to_the_provider_the_client_asked_for(shared: Whole) -> None:
    answer = ask(shared, "integrate x squared from zero to one")
    assert seen_at(answer) == ("rest", "pass", "default")
    assert shared.origin.last.headers["authorization"] == f"Bearer {CLIENT_KEY}"
    assert shared.origin.last.json["model"] == "gpt-4o-mini"


def test_a_block_is_the_openai_error_that_clients_know(shared: Whole) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="Not through here"):
        ask(shared, "this is forbidden")
    assert not shared.origin.seen and not shared.second.seen


def test_anthropic_requests_reach_the_local_engine_in_their_own_format(shared: Whole) -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "translate: good night"}],
    }
    headers = {"x-api-key": CLIENT_KEY, "anthropic-version": "2023-06-01"}
    import httpx2

    with httpx2.Client(timeout=90) as c:
        answer = c.post(f"{shared.origin.url}/v1/messages", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["type"] == "message"
    assert answer.json()["content"][0]["text"]
    assert answer.headers["x-turnout-target"] == "local/tiny"


def test_no_log_has_the_prompt_or_the_key(shared: Whole) -> None:
    ask(shared, SECRET_WORDS)
    ask(shared, f"{SECRET_WORDS} remotely")
    for log in (shared.proxy.log, shared.sidecar.log):
        assert log
        assert "pelicans" not in log and CLIENT_KEY not in log


# -- what breaks ----------------------------------------------------------------------------------


def test_a_client_that_leaves_stops_the_engine(shared: Whole) -> None:
    with client(shared) as c:
        stream = c.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": "translate a very long story"}],
            max_tokens=1_900,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        next(iter(stream))
        assert processing(shared) == 1
        stream.close()
    # 1,900 tokens take twenty seconds and more; a stop shows within a few tokens.
    wait_until(lambda: processing(shared) == 0, 5.0, "the engine to stop generating")
    wait_until(lambda: shared.backend()["running"] == 0, 5.0, "the seat to be free")


def processing(whole: Whole) -> int:
    """llama.cpp's own count of requests that it generates for."""
    command = Path(f"/proc/{whole.backend()['pid']}/cmdline").read_text().split("\0")
    port = command[command.index("--port") + 1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    line = next(x for x in text.splitlines() if x.startswith("llamacpp:requests_processing"))
    return int(float(line.split()[-1]))


def test_an_engine_that_was_killed_is_there_again_for_the_next_request(own: Whole) -> None:
    assert ask(own, "translate one").parse().choices
    before = own.backend()
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{before['pid']}").exists(), 10.0, "the engine's end")
    answer = ask(own, "translate two")
    assert seen_at(answer)[1] == "local/tiny"
    after = own.backend()
    assert after["pid"] != before["pid"]
    assert after["starts"] == 2


def test_without_the_sidecar_requests_go_on(own: Whole) -> None:
    assert seen_at(ask(own, "how should I fry potatoes"))[2] == "semantic"
    pid = ask(own, "translate one") and own.backend()["pid"]
    own.sidecar.kill()
    assert seen_at(ask(own, "how should I fry carrots")) == ("rest", "pass", "default")
    assert seen_at(ask(own, "remotely, please"))[1] == "second/far-model"
    with pytest.raises(openai.APIStatusError) as refused:
        ask(own, "translate two")
    assert refused.value.status_code == 503
    assert int(refused.value.response.headers["retry-after"]) >= 1
    assert "sidecar" in str(refused.value)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10.0, "the engine to die with it")


def test_broken_rules_leave_the_old_ones_and_repaired_ones_are_live(own: Whole) -> None:
    routes = own.rules / "routes.yaml"
    routes.write_text(ROUTES.replace("target: second/far-model", "target: nowhere/far-model"))
    wait_until(lambda: "nowhere/far-model" in own.proxy.log, 10.0, "the error in the log")
    assert "routes.yaml:15" in own.proxy.log
    assert seen_at(ask(own, "remotely, please"))[1] == "second/far-model"
    routes.write_text(ROUTES.replace("target: second/far-model", "target: second/new-model"))
    wait_until(
        lambda: seen_at(ask(own, "remotely, please"))[1] == "second/new-model", 10.0, "new rules"
    )
