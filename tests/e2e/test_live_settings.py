"""Settings of the proxy count at the save, and taken out they count no more."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from proxy_kit import Proxy, Upstream, proxy, upstream, wait_until, write_rules
from turnout_rules.kinds import AT_SAVE
from turnout_rules.settings_loading import SECTIONS

ROUTES = """
routes:
  - {{name: word, match: [zebra], priority: 1, target: near/m}}
  - {{name: taught, examples: [will it rain], target: near/rain}}
  - {{name: rest, match: [.*], target: pass}}
upstreams:
  near: {{base_url: "{near}/v1"}}
"""


class Scene:
    """A proxy over three upstreams, and a sidecar that accepts connections and says nothing."""

    def __init__(self, p: Proxy, near: Upstream, one: Upstream, two: Upstream) -> None:
        self.p, self.near, self.one, self.two = p, near, one, two
        self.usual = {"proxy": {"origin": one.url, "anthropic_origin": one.url}}
        self.saves = 0

    def save(self, section: str = "", **values: Any) -> None:
        """The usual settings, and `values` in `section`."""
        settings = {**self.usual, section: {**self.usual.get(section, {}), **values}}
        settings.pop("", None)
        self.saves += 1
        settings["x-save"] = self.saves
        count = self.p.log.count("rules reloaded")
        (self.p.rules / "turnout.yaml").write_text(json.dumps(settings))
        wait_until(lambda: self.p.log.count("rules reloaded") > count, 5, "reload")

    def ask(self, text: str, **headers: str) -> httpx2.Response:
        """By the base-URL listener."""
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        url = f"{self.p.base_url}/v1/chat/completions"
        return httpx2.post(url, json=body, headers=headers, trust_env=False, timeout=10)

    def origin(self, **headers: str) -> str:
        counts = len(self.one.seen), len(self.two.seen)
        assert self.ask(f"hello {self.saves}", **headers).status_code == 200
        return {(1, 0): "one", (0, 1): "two"}[
            (len(self.one.seen) - counts[0], len(self.two.seen) - counts[1])
        ]

    def waits_long(self) -> bool:
        """Whether an undecided request waits over a second for a sidecar that says nothing."""
        for number in range(100):
            began = time.monotonic()
            self.ask(f"undecided {self.saves} {number}")
            waited_s = time.monotonic() - began
            if waited_s > 0.2:  # else the breaker was open, and it was not asked
                return waited_s > 1.2
            time.sleep(0.1)
        raise AssertionError("the sidecar was never asked")


@pytest.fixture(scope="module", params=[()], ids=[""])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """A parameter: further arguments of the proxy."""
    folder = tmp_path_factory.mktemp("live")
    with (
        upstream() as near,
        upstream() as one,
        upstream() as two,
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent,
    ):
        rules = write_rules(
            folder / "rules",
            routes=ROUTES.format(near=near.url),
            turnout=json.dumps({"proxy": {"origin": one.url, "anthropic_origin": one.url}}),
        )
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        arguments = ("--sidecar", address, *request.param)
        environ = {"TURNOUT_PROXY_AUTH": "a:first", "OTHER_AUTH": "b:second"}
        with proxy(folder / "p", rules, *arguments, environ=environ) as p:
            yield Scene(p, near, one, two)


def signed_in(s: Scene) -> list[int]:
    """What either password is answered."""
    found = []
    for login in ("a:first", "b:second"):
        by = f"http://{login}@127.0.0.1:{s.p.state['proxy_port']}"
        with httpx2.Client(proxy=by, trust_env=False, timeout=10) as client:
            found.append(client.get("http://127.0.0.1:9/").status_code)
    return found


def opened(s: Scene) -> bool:
    """Whether a host of the intercept list is decided about."""
    by = s.p.url
    body = {"model": "m", "messages": [{"role": "user", "content": "zebra"}]}
    with httpx2.Client(proxy=by, trust_env=False, timeout=10) as client:
        answer = client.post("http://llm.example/v1/chat/completions", json=body)
    return answer.headers.get("x-turnout-target") == "near/m"


def takes_3_kb(s: Scene) -> int:
    return int(s.ask("zebra " + "x" * 3000).status_code)


CASES: list[tuple[str, Any, Callable[[Scene], Any], Any, Any]] = [
    ("proxy.intercept", ["llm.example"], opened, False, True),
    ("proxy.origin", "two", lambda s: s.origin(), "one", "two"),
    (
        "proxy.anthropic_origin",
        "two",
        lambda s: s.origin(**{"anthropic-version": "1"}),
        "one",
        "two",
    ),
    ("proxy.max_body_bytes", 2048, takes_3_kb, 200, 413),
    ("sidecar.default_timeout_ms", 2000, Scene.waits_long, False, True),
]
AUTH = ("proxy.auth", "OTHER_AUTH", signed_in, [403, 407], [407, 403])
FOR_ALL = [((), case) for case in CASES] + [(("--listen-host", "0.0.0.0"), AUTH)]
WITH_A_VIEW = {"proxy.keep_flows", "proxy.keep_flow_bytes"}
"""Only mitmweb has one: `tests/addon/test_keeping.py`."""


def test_the_table_of_cases_is_complete() -> None:
    live = {f"proxy.{n}" for n, key in SECTIONS["proxy"][0].items() if key.takes_effect == AT_SAVE}
    assert {case[0] for _, case in FOR_ALL} == live - WITH_A_VIEW | {"sidecar.default_timeout_ms"}


@pytest.mark.parametrize(
    ("scene", "case"), FOR_ALL, ids=[case[0] for _, case in FOR_ALL], indirect=["scene"]
)
def test_a_saved_setting_counts_and_so_does_taking_it_out(scene: Scene, case: Any) -> None:
    name, value, look, usual, changed = case
    section, _, setting = name.partition(".")
    scene.save()
    assert look(scene) == usual
    scene.save(section, **{setting: scene.two.url if value == "two" else value})
    assert look(scene) == changed
    scene.save()
    assert look(scene) == usual


def test_another_origin_and_other_hosts_at_once_leave_the_base_url_listener_open(
    scene: Scene,
) -> None:
    scene.save("proxy", origin=scene.two.url, intercept=["llm.example"])
    assert scene.origin() == "two"
    assert scene.ask("zebra").headers["x-turnout-target"] == "near/m"
    scene.save()
    assert scene.origin() == "one"


def test_what_waits_for_a_restart_is_named_and_not_half_in_force(scene: Scene) -> None:
    scene.save("proxy", port=9999, upstream_proxy="http://127.0.0.1:9")
    said = "saved, and counts after a restart of Turnout: proxy.port, proxy.upstream_proxy"
    assert scene.p.log.count(said) == 1
    assert scene.ask("zebra").status_code == 200, "sent by no proxy"
    scene.save()
    assert scene.p.log.count(said) == 1
