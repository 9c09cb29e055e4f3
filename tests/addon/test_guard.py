"""Where nobody may go through the proxy, and who may use it."""

from __future__ import annotations

import base64

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from turnout_addon.guard import Guard, ProxyPassword, foreign_page, is_loopback_host
from turnout_addon.hosts import InterceptList

NOTHING = InterceptList([])


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("169.254.169.254", 80, "link-local"),
        ("[fe80::1%eth0]", 80, "link-local"),
        ("224.0.0.1", 80, "multicast"),
        ("127.0.0.1", 5000, "NO_PROXY"),
        ("[::1]", 5000, "NO_PROXY"),
        ("::ffff:127.0.0.1", 5000, "NO_PROXY"),
        ("::ffff:169.254.169.254", 80, "link-local"),
        ("0.0.0.0", 5000, "NO_PROXY"),
        ("localhost", 5000, "NO_PROXY"),
        ("127.0.0.1", 8083, "Turnout's own"),
        ("localhost", 8083, "Turnout's own"),
        ("93.184.216.34", 443, ""),
        ("93.184.216.34", 8083, ""),
        ("no-such-name.invalid", 443, ""),
    ],
)
async def test_destinations(host: str, port: int, words: str) -> None:
    reason = await Guard({8083}).obstacle(host, port, NOTHING)
    assert words in reason
    assert bool(reason) == bool(words)


async def test_a_listed_loopback_host_may_be_reached_and_our_own_ports_never() -> None:
    guard = Guard({8083})
    listed = InterceptList(["localhost"])
    assert await guard.obstacle("localhost", 5000, listed) == ""
    assert "Turnout's own" in await guard.obstacle("localhost", 8083, listed)


async def test_a_verdict_is_remembered_until_the_list_changes() -> None:
    guard = Guard(())
    assert await guard.obstacle("localhost", 5000, NOTHING)
    listed = InterceptList(["localhost"])
    assert await guard.obstacle("localhost", 5000, listed)
    guard.forget()
    assert not await guard.obstacle("localhost", 5000, listed)


def test_a_name_that_turned_out_to_lead_home_is_cut_unless_the_rules_name_it() -> None:
    guard = Guard(())
    assert guard.peer_obstacle("127.0.0.1", 80, is_named=False)
    assert not guard.peer_obstacle("127.0.0.1", 80, is_named=True)
    assert not guard.peer_obstacle("93.184.216.34", 443, is_named=False)
    assert not guard.peer_obstacle("/a/socket", 0, is_named=False)


def signed(words: str, method: str = "GET") -> http.HTTPFlow:
    flow = tflow.tflow()
    flow.request.method = method
    if words:
        flow.request.headers["proxy-authorization"] = words
    return flow


def basic(words: str) -> str:
    return f"Basic {base64.b64encode(words.encode()).decode()}"


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        (basic("me:secret"), True),
        (basic("me:secret").replace("Basic", "basic"), True),
        (basic("me:wrong"), False),
        (basic("me"), False),
        ("Basic ???", False),
        ("Bearer me:secret", False),
        ("", False),
    ],
)
def test_the_password_is_asked_for_and_never_sent_on(given: str, accepted: bool) -> None:
    flow = signed(given)
    assert ProxyPassword("me:secret").accepts(flow) is accepted
    assert "proxy-authorization" not in flow.request.headers


def test_a_tunnels_client_is_known_for_what_comes_through_it() -> None:
    password = ProxyPassword("me:secret")
    tunnel = signed(basic("me:secret"), "CONNECT")
    assert password.accepts(tunnel)
    inside = signed("")
    assert not password.accepts(inside)
    inside.client_conn = tunnel.client_conn
    assert password.accepts(inside)
    assert password.renewed("me:secret") is password
    assert not password.renewed("me:other").accepts(inside)


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({}, False),
        ({"origin": "http://localhost:3000"}, False),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-origin"}, False),
    ],
)
def test_pages_of_other_sites_are_refused(headers: dict[str, str], is_refused: bool) -> None:
    assert bool(
        foreign_page(http.Headers(**{k.replace("-", "_"): v for k, v in headers.items()}))
    ) is (is_refused)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("x", False)],
)
def test_which_listeners_are_this_machines_only(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected
