"""Where nobody may go through the proxy, and who may use it."""

from __future__ import annotations

import base64

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from turnout_addon.guard import Guard, ProxyPassword, foreign_page, is_loopback_host
from turnout_addon.hosts import InterceptList

NOTHING = InterceptList([])
METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:100.100.100.200]",
    "[::100.100.100.200]",
    "[64:ff9b::100.100.100.200]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1:a9fe:a9:fe00::]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:6464:64c8::1]",
    "[2001:0:a83f:8110::1]",
    "[2001:0:4136:e378:8000:63bf:5601:5601]",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "metadata",
    "metadata.goog",
    "instance-data.ec2.internal",
    "metadata.tencentyun.com",
]


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
        *((host, 80, "metadata") for host in METADATA),
        ("2130706433", 5000, "NO_PROXY"),
        ("0x7f000001", 5000, "NO_PROXY"),
        ("0177.0.0.1", 5000, "NO_PROXY"),
        ("127.1", 5000, "NO_PROXY"),
        ("0x7f.0.0x1", 5000, "NO_PROXY"),
        ("①②⑦.⓪.⓪.①", 5000, "NO_PROXY"),
        ("127。0。0。1", 5000, "NO_PROXY"),
        ("127.0.0.1.", 5000, "NO_PROXY"),
        ("0.0.0.1", 5000, "NO_PROXY"),
        ("[::7f00:1]", 5000, "NO_PROXY"),
        ("[64:ff9b::7f00:1]", 5000, "NO_PROXY"),
        ("[2002:7f00:1::1]", 5000, "NO_PROXY"),
        ("[::ffff:0:127.0.0.1]", 5000, "NO_PROXY"),
        ("[fe80::5efe:7f00:1]", 5000, "link-local"),
        ("[2001:db8::5efe:7f00:1]", 5000, "NO_PROXY"),
        ("[64:ff9b::5db8:d822]", 443, ""),
        ("[64:ff9b:1::5db8:d822]", 443, ""),
        ("[64:ff9b:1:5db8:d8:2200::]", 443, ""),
        ("[2002:5db8:d822::1]", 443, ""),
        ("[2606:4700::6810:84e5]", 443, ""),
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


async def test_metadata_is_refused_even_where_it_is_listed() -> None:
    listed = InterceptList(["metadata.google.internal", "100.100.100.200"])
    assert await Guard(()).obstacle("metadata.google.internal", 80, listed)
    assert await Guard(()).obstacle("100.100.100.200", 80, listed)


@pytest.mark.parametrize(
    ("peer", "host", "is_listed", "is_destination", "is_cut"),
    [
        ("127.0.0.1", "a.example", False, False, True),
        ("127.0.0.1", "a.example", True, False, False),
        ("127.0.0.1", "a.example", False, True, False),
        ("::ffff:127.0.0.1", "a.example", False, False, True),
        ("169.254.169.254", "a.example", True, False, True),
        ("169.254.169.254", "a.example", False, True, True),
        ("64:ff9b::a9fe:a9fe", "a.example", False, True, True),
        ("fd00:ec2::254", "a.example", True, False, True),
        ("169.254.7.7", "box.local", False, True, False),
        ("169.254.169.254", "169.254.169.254", False, True, False),
        ("93.184.216.34", "a.example", False, False, False),
        ("/a/socket", "a.example", False, False, False),
    ],
)
def test_where_a_name_turned_out_to_lead(
    peer: str, host: str, is_listed: bool, is_destination: bool, is_cut: bool
) -> None:
    """What the rules name may be anywhere but, by a name, at a cloud's metadata."""
    reason = Guard(()).peer_obstacle(
        peer, host, 80, is_listed=is_listed, is_destination=is_destination
    )
    assert bool(reason) is is_cut


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
        ({"origin": "http://app.localhost:3000"}, False),
        ({"origin": "http://[::1]:3000"}, False),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
        ({"origin": "http://[::1"}, True),
        ({"origin": "http://[nonsense]"}, True),
        ({"origin": "http://localhost:port"}, True),
        ({"origin": "http://localhost@evil.example"}, True),
        ({"origin": "http://evil.example\\@localhost"}, True),
        ({"origin": "http://localhost/path"}, True),
        ({"origin": "localhost"}, True),
        ({"origin": "chrome-extension://localhost"}, True),
        ({"origin": "http://localhost, https://evil.example"}, True),
        ({"origin": "http://localhost" + "0" * 10_000}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "odd"}, True),
        ({"sec-fetch-site": "same-origin"}, False),
    ],
)
def test_pages_of_other_sites_are_refused(headers: dict[str, str], is_refused: bool) -> None:
    assert bool(
        foreign_page(http.Headers(**{k.replace("-", "_"): v for k, v in headers.items()}))
    ) is (is_refused)


def test_two_origins_are_none() -> None:
    headers = http.Headers([(b"Origin", b"http://localhost"), (b"Origin", b"https://evil.example")])
    assert foreign_page(headers)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("x", False)],
)
def test_which_listeners_are_this_machines_only(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected
