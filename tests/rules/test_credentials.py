"""No credential of the client's ever reaches another host."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.bodies.making import managed, target
from turnout_rules.credentials import Keyring, MissingKey
from turnout_rules.model import Route, Target

CLIENT = [
    ("Host", "api.openai.com"),
    ("Authorization", "Bearer sk-client"),
    ("x-api-key", "sk-client"),
    ("api-key", "sk-client"),
    ("X-Goog-Api-Key", "sk-client"),
    ("Proxy-Authorization", "Basic sk-client"),
    ("Cookie", "sk-client"),
    ("OpenAI-Organization", "org-client"),
    ("OpenAI-Project", "proj-client"),
    ("ChatGPT-Account-ID", "acct-client"),
    ("anthropic-dangerous-direct-browser-access", "client"),
    ("x-amz-security-token", "sk-client"),
    ("X-Forwarded-For", "client"),
    ("X-Stainless-OS", "client"),
    ("traceparent", "client"),
    ("baggage", "client"),
    ("x-turnout-route", "client"),
    ("Referer", "client"),
    ("x-brand-new-token", "sk-client"),
    ("session_id", "client"),
    ("content-digest", "client"),
    ("Content-Length", "5"),
    ("Transfer-Encoding", "chunked"),
    ("Content-Encoding", "zstd"),
    ("Accept", "text/event-stream"),
    ("Content-Type", "application/json"),
    ("User-Agent", "openai-python"),
]


def send(
    to: Target,
    headers: list[tuple[str, str]] | None = None,
    *,
    route: Route | None = None,
    **environ: str,
) -> dict[str, str]:
    keyring = Keyring({to.upstream.name: to.upstream}, environ)
    outgoing = keyring.outgoing(CLIENT if headers is None else headers, to, route)
    names = [name.lower() for name, _ in outgoing]
    assert len(names) == len(set(names))
    return {name.lower(): value for name, value in outgoing}


def test_only_harmless_headers_and_the_targets_key_go_out() -> None:
    sent = send(target(api_key_env="KEY"), KEY="sk-target")
    assert sent == {
        "accept": "text/event-stream",
        "content-type": "application/json",
        "user-agent": "openai-python",
        "authorization": "Bearer sk-target",
    }


def test_a_local_target_gets_no_key_at_all() -> None:
    sent = send(managed("vllm"))
    assert set(sent) == {"accept", "content-type", "user-agent"}
    assert "client" not in str({k: v for k, v in sent.items() if k != "user-agent"})


@pytest.mark.parametrize(
    ("base_url", "auth_header", "header", "value"),
    [
        ("https://api.openai.com/v1", "", "authorization", "Bearer k"),
        ("https://api.openai.com/v1", "Authorization", "authorization", "Bearer k"),
        ("https://x.openai.azure.com/openai", "", "api-key", "k"),
        ("https://api.anthropic.com", "", "x-api-key", "k"),
        ("https://gateway.example.com/v1", "X-Gateway-Key", "x-gateway-key", "k"),
    ],
)
def test_the_key_goes_into_the_header_the_target_wants(
    base_url: str, auth_header: str, header: str, value: str
) -> None:
    sent = send(target(base_url, api_key_env="K", auth_header=auth_header), K="k\n")
    assert sent[header] == value


def test_anthropic_gets_its_version_and_the_clients_flags() -> None:
    to = target("https://api.anthropic.com", api_key_env="K")
    headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "oauth-2025-04-20,tools-1")]
    sent = send(to, headers, K="k")
    assert sent == {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "tools-1",
        "x-api-key": "k",
    }
    assert send(to, [], K="k")["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}, {"KEY": "  "}, {"KEY": "a\nb"}])
def test_without_its_key_a_target_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(MissingKey) as caught:
        send(target(api_key_env="KEY"), **environ)
    assert caught.value.upstream == "up"
    assert "client" not in str(caught.value)


def test_a_remote_target_without_any_key_setting_is_refused() -> None:
    with pytest.raises(MissingKey, match="api_key_env"):
        send(target())
    assert "authorization" not in send(target("http://gpu-box:8000/v1", engine="external"))


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000"])
def test_a_loopback_target_may_have_no_key(host: str) -> None:
    assert "authorization" not in send(target(f"http://{host}/v1"))


def test_a_key_is_read_from_a_file_once(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-file\n")
    to = target(api_key_file=str(file))
    keyring = Keyring({"up": to.upstream}, {})
    file.unlink()
    assert dict(keyring.outgoing([], to, None)) == {"authorization": "Bearer sk-file"}
    with pytest.raises(MissingKey, match="cannot be read"):
        send(to)


def test_headers_of_upstream_and_route_are_put_on() -> None:
    to = target(api_key_env="K", headers={"X-Title": "turnout", "User-Agent": "mine"})
    route = Route(name="r", headers={"x-title": "route", "X-Priority": "1"})
    keyring = Keyring({"up": to.upstream}, {"K": "k"})
    outgoing = keyring.outgoing(CLIENT, to, route)
    assert ("User-Agent", "mine") in outgoing
    assert ("User-Agent", "openai-python") not in outgoing
    assert [value for name, value in outgoing if name.lower() == "x-title"] == ["route"]


def test_an_upstreams_own_authorization_replaces_a_key() -> None:
    to = target(headers={"Authorization": "Basic abc"})
    assert send(to)["authorization"] == "Basic abc"


def test_keys_are_never_shown() -> None:
    to = target(api_key_env="K")
    keyring = Keyring({"up": to.upstream}, {"K": "sk-target"})
    assert "sk-target" not in repr(keyring)
    assert "sk-target" not in repr(keyring._keys)
