"""The set-up of the end-to-end tests: a provider behind TLS, a second one, a proxy between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy_kit import Proxy, Upstream, make_certificates, proxy, say_ok, upstream, write_rules

CLIENT_KEY = "sk-client-key-0000"
OTHER_KEY = "sk-other-provider-key-1111"

ROUTES = """
routes:
  - name: stop
    match: [forbidden]
    priority: 20
    target: block
    message: Not through here.
  - name: code
    match: [debug]
    priority: 10
    target: other/code-model
  - name: keyless
    match: [keyless]
    priority: 9
    target: unkeyed/model
  - name: local
    match: [locally]
    priority: 8
    target: managed/tiny
  - name: sound
    when: {endpoint: [transcriptions, rerank]}
    priority: 7
    target: other/ears
  - name: rest
    match: [.*]
    target: pass
"""


@dataclass
class Setup:
    """What a test works with."""

    proxy: Proxy
    origin: Upstream
    """The provider the client addresses, on `localhost` behind TLS."""
    other: Upstream
    """Another provider, with a key of its own."""


@pytest.fixture(scope="module", params=["lean", "mitmweb"])
def setup(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("e2e")
    ca, server = make_certificates(folder, ("localhost", "127.0.0.1", "api.openai.com"))
    with upstream(server_file=server) as origin, upstream() as other:
        rules = write_rules(
            folder / "rules",
            routes=ROUTES,
            upstreams=upstreams(other),
            turnout=settings(origin, ca),
        )
        environ = {"OTHER_KEY": OTHER_KEY}
        with proxy(
            folder / "p", rules, is_lean=request.param == "lean", environ=environ
        ) as running:
            yield Setup(running, origin, other)


@pytest.fixture(autouse=True)
def forget(request: pytest.FixtureRequest) -> None:
    """Each test starts with upstreams that have seen nothing and answer plainly."""
    if "setup" in request.fixturenames:
        setup = request.getfixturevalue("setup")
        for each in (setup.origin, setup.other):
            each.seen.clear()
            each.disconnects.clear()
            each.reply = say_ok


def upstreams(other: Upstream) -> str:
    return f"""
upstreams:
  other:
    base_url: {other.url}/v1
    api_key_env: OTHER_KEY
  unkeyed:
    base_url: https://unkeyed.invalid/v1
    api_key_env: NO_SUCH_KEY
  managed:
    engine: llamacpp
    models:
      tiny: {{model_path: smollm2}}
"""


def settings(origin: Upstream, ca: Path) -> str:
    return f"""
proxy:
  intercept: [localhost]
  origin: {origin.url}
  anthropic_origin: {origin.url}
  upstream_ca: {ca}
classifier:
  kind: "off"
sidecar:
  port: 1
"""
