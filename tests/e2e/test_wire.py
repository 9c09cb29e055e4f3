"""What HTTP allows and libraries seldom send: interim answers, trailers, and all that is too large.

Against a real proxy and a real gateway; the peers are written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from proxy_kit import Proxy, proxy, write_rules
from raw_kit import (
    COMPLETION,
    OK,
    RawUpstream,
    ask,
    connected,
    post,
    post_chunked,
    raw_upstream,
    read_answer,
)
from sidecar_process import SidecarProcess, sidecar_process

LIMIT = 1_000_000
ROUTES = """
routes:
  - {name: code, match: [debug], target: other/code-model}
  - {name: rest, match: [.*], target: pass}
"""
MOVED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "debug"}]}).encode()
PASSED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()


@dataclass
class Planes:
    """Both planes with the upstreams behind them."""

    proxy: Proxy
    sidecar: SidecarProcess
    origin: RawUpstream
    other: RawUpstream

    def port(self, door: str) -> int:
        if door == "gateway":
            return self.sidecar.port
        name = {"base": "base_url_port", "proxy": "proxy_port"}[door]
        return int(self.proxy.state[name])

    def path(self, door: str) -> str:
        """The request target of a routed request at `door`."""
        return f"http://localhost:{self.origin.port}/v1/chat/completions" if door == "proxy" else ""


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planes]:
    folder = tmp_path_factory.mktemp("wire")
    with raw_upstream() as origin, raw_upstream() as other:
        rules = write_rules(
            folder / "rules",
            routes=ROUTES,
            upstreams=f'upstreams:\n  other: {{base_url: "{other.url}/v1"}}\n',
            turnout=f"""
proxy:
  intercept: [localhost]
  origin: {origin.url}
  anthropic_origin: {origin.url}
  max_body_bytes: {LIMIT}
classifier: {{kind: "off"}}
sidecar: {{port: 1}}
""",
        )
        with proxy(folder / "p", rules) as p, sidecar_process(folder / "s", rules) as s:
            yield Planes(p, s, origin, other)


@pytest.fixture(autouse=True)
def fresh(planes: Planes) -> None:
    for each in (planes.origin, planes.other):
        each.seen.clear()
        each.says, each.closes = OK, False


DOORS = ("base", "proxy", "gateway")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error(answer: bytes) -> dict[str, object]:
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]  # type: ignore[no-any-return]


def routed(planes: Planes, door: str, body: bytes = MOVED, *fields: str) -> bytes:
    path = planes.path(door) or "/v1/chat/completions"
    return post(body, *fields, path=path)


# -- interim answers ------------------------------------------------------------------------------

HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("interim", [HINTS, PROCESSING, CONTINUE, HINTS * 3 + PROCESSING])
def test_interim_answers_do_not_pass_for_the_final_one(
    planes: Planes, door: str, interim: bytes
) -> None:
    planes.other.says = interim + OK
    with connected(planes.port(door)) as it:
        for _ in range(2):  # the second on the same connection: nothing is out of step
            it.sendall(routed(planes, door))
            assert status(read_answer(it)) == 200
    assert len(planes.other.seen) == 2


def test_they_do_not_in_what_passes_either(planes: Planes) -> None:
    planes.origin.says = HINTS + OK
    assert ask(planes.port("base"), post(PASSED)).startswith(b"HTTP/1.1 200")


def test_no_end_of_interim_answers_is_an_error(planes: Planes) -> None:
    planes.other.says = HINTS * 100
    answer = ask(planes.port("base"), routed(planes, "base"))
    assert status(answer) == 502
    assert "interim" in str(error(answer)["message"])


@pytest.mark.parametrize("door", DOORS)
def test_a_changed_protocol_that_nobody_asked_for_is_an_error(planes: Planes, door: str) -> None:
    planes.other.says = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: odd\r\n\r\nodd bytes"
    answer = ask(planes.port(door), routed(planes, door))
    assert status(answer) == 502
    assert "101" in str(error(answer)["message"])
    assert b"odd bytes" not in answer


@pytest.mark.parametrize("door", ["base", "proxy"])
def test_one_that_was_asked_for_goes_through(planes: Planes, door: str) -> None:
    planes.origin.says = (
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x02ho"
    )
    where = f"http://localhost:{planes.origin.port}" if door == "proxy" else ""
    head = (
        f"GET {where}/v1/realtime HTTP/1.1\r\nHost: localhost:{planes.origin.port}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    got = b""
    with connected(planes.port(door)) as it:
        it.sendall(head.encode())
        while not got.endswith(b"\x81\x02ho"):
            piece = it.recv(4_096)
            assert piece, got
            got += piece
    assert got.startswith(b"HTTP/1.1 101")


# -- trailers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_a_request_with_trailers_is_read(planes: Planes, door: str) -> None:
    pieces = post_chunked(
        MOVED[:9], MOVED[9:], trailers="x-sum: 1\r\nx-more: 2\r\n", path=planes.path(door)
    )
    assert status(ask(planes.port(door), *pieces)) == 200
    assert b"x-sum" not in planes.other.seen[0]
    assert b'"code-model"' in planes.other.seen[0]


def test_one_that_passes_loses_only_them(planes: Planes) -> None:
    pieces = post_chunked(PASSED, trailers="x-sum: 1\r\n")
    assert status(ask(planes.port("base"), *pieces)) == 200
    assert PASSED in planes.origin.seen[0]


@pytest.mark.parametrize("door", DOORS)
def test_an_answer_with_trailers_is_read(planes: Planes, door: str) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    planes.other.says = head + b"%x\r\n%s\r\n0\r\nx-sum: 1\r\n\r\n" % (
        len(COMPLETION),
        COMPLETION,
    )
    with connected(planes.port(door)) as it:
        for _ in range(2):
            it.sendall(routed(planes, door))
            answer = read_answer(it)
            assert status(answer) == 200
            assert COMPLETION in answer


@pytest.mark.parametrize("door", DOORS)
def test_trailers_without_end_are_refused(planes: Planes, door: str) -> None:
    pieces = post_chunked(MOVED, trailers="x: " + "y" * 2_000_000 + "\r\n", path=planes.path(door))
    try:
        answer = ask(planes.port(door), *pieces)
    except ConnectionError:
        answer = b""  # cut: what is left to say would not be read
    assert not answer or status(answer) in (400, 431)
    assert planes.other.seen == []


def test_a_broken_chunk_is_not_waited_for(planes: Planes) -> None:
    head = next(iter(post_chunked()))
    with connected(planes.port("gateway")) as it:
        it.sendall(head + b"5\r\n" + MOVED[:5] + b"\r\n")
        it.sendall(b"zz\r\nno chunk\r\n")
        answer = read_answer(it)
    assert status(answer) == 400
    assert error(answer)["code"] == "no_http"
    assert "Traceback" not in planes.sidecar.log


# -- heads ----------------------------------------------------------------------------------------

MANY = "\r\n".join(f"x-{n}: y" for n in range(20_000))
HUGE = "x-huge: " + "y" * 5_000_000


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fields", [MANY, HUGE], ids=["many", "huge"])
def test_a_requests_head_is_bounded_and_answered(planes: Planes, door: str, fields: str) -> None:
    answer = ask(planes.port(door), routed(planes, door, MOVED, fields))
    assert status(answer) == 431
    assert error(answer)["message"]
    assert planes.other.seen == []
    assert status(ask(planes.port(door), routed(planes, door))) == 200


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fields", [MANY, HUGE], ids=["many", "huge"])
def test_an_answers_head_is_bounded(planes: Planes, door: str, fields: str) -> None:
    planes.other.says = OK.replace(b"\r\n\r\n", b"\r\n" + fields.encode() + b"\r\n\r\n")
    planes.other.closes = True
    answer = ask(planes.port(door), routed(planes, door))
    assert status(answer) == 502
    assert len(answer) < 100_000
    planes.other.says = OK
    assert status(ask(planes.port(door), routed(planes, door))) == 200


@pytest.mark.parametrize("door", DOORS)
def test_a_head_of_a_hundred_fields_and_thirty_kilobytes_is_none_too_large(
    planes: Planes, door: str
) -> None:
    fields = "\r\n".join(f"x-{n}: {'y' * 300}" for n in range(100))
    assert status(ask(planes.port(door), routed(planes, door, MOVED, fields))) == 200


# -- headers that act on the client's origin ------------------------------------------------------

ACTING = {
    "set-cookie": "session=theirs; Path=/",
    "strict-transport-security": "max-age=31536000",
    "alt-svc": 'h3=":443"',
    "clear-site-data": '"cookies"',
    "access-control-allow-origin": "*",
    "access-control-allow-credentials": "true",
    "www-authenticate": 'Basic realm="theirs"',
    "location": "https://elsewhere.example/",
    "link": "<https://elsewhere.example/>; rel=preload",
    "content-security-policy": "default-src 'none'",
    "x-accel-redirect": "/internal",
}
HARMLESS = {"x-request-id": "r1", "x-ratelimit-remaining-requests": "9", "openai-model": "m"}


def with_fields(fields: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    return OK.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n")


def names_of(answer: bytes) -> set[str]:
    lines = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {line.partition(":")[0].lower() for line in lines}


@pytest.mark.parametrize("door", DOORS)
def test_what_another_host_says_of_itself_is_not_taken_for_the_addressed_one(
    planes: Planes, door: str
) -> None:
    planes.other.says = with_fields(ACTING | HARMLESS)
    names = names_of(ask(planes.port(door), routed(planes, door)))
    assert names & {*ACTING} == set()
    assert {*HARMLESS} <= names


@pytest.mark.parametrize("door", ["base", "proxy"])
def test_what_passes_keeps_what_its_own_host_says(planes: Planes, door: str) -> None:
    planes.origin.says = with_fields(ACTING | HARMLESS)
    names = names_of(ask(planes.port(door), routed(planes, door, PASSED)))
    assert {*ACTING, *HARMLESS} <= names


# -- bodies ---------------------------------------------------------------------------------------

LARGE = b'{"model":"m","x":"' + b"y" * LIMIT + b'"}'


@pytest.mark.parametrize("door", DOORS)
def test_a_body_over_the_limit_is_refused_whole_or_in_chunks(planes: Planes, door: str) -> None:
    """The client only listens once it has written everything."""
    piece = 65_536
    chunks = [LARGE[at : at + piece] for at in range(0, len(LARGE), piece)]
    for pieces in ([routed(planes, door, LARGE)], post_chunked(*chunks, path=planes.path(door))):
        answer = ask(planes.port(door), *pieces)
        assert status(answer) == 413
        assert error(answer)["code"] == "body_too_large"
        assert str(LIMIT) in str(error(answer)["message"])
    assert planes.origin.seen == planes.other.seen == []


@pytest.mark.parametrize("door", DOORS)
def test_one_far_over_it_too(planes: Planes, door: str) -> None:
    assert status(ask(planes.port(door), routed(planes, door, LARGE * 3))) == 413


@pytest.mark.parametrize("door", DOORS)
def test_the_refusal_comes_before_the_body_has(planes: Planes, door: str) -> None:
    head, _, _ = routed(planes, door, LARGE).partition(b"\r\n\r\n")
    with connected(planes.port(door)) as it:
        it.sendall(head + b"\r\n\r\n" + b'{"model"')
        assert status(read_answer(it)) == 413


@pytest.mark.parametrize("door", ["base", "proxy"])
def test_what_is_dropped_after_the_refusal_is_bounded(planes: Planes, door: str) -> None:
    head, _, _ = routed(planes, door, b"y" * 1_000_000_000).partition(b"\r\n\r\n")
    sent = 0
    with connected(planes.port(door)) as it, pytest.raises(ConnectionError):
        it.sendall(head + b"\r\n\r\n")
        while sent < 1_000_000_000:
            it.sendall(b"y" * 100_000)
            sent += 100_000
    assert sent < 40 * LIMIT


@pytest.mark.parametrize("door", DOORS)
def test_one_just_under_the_limit_is_served(planes: Planes, door: str) -> None:
    fill = json.dumps({"model": "m", "messages": [{"role": "user", "content": "debug"}]})
    body = fill.encode() + b" " * (LIMIT - len(fill))
    assert status(ask(planes.port(door), routed(planes, door, body))) == 200


def test_anthropics_clients_get_their_own_format(planes: Planes) -> None:
    answer = ask(planes.port("base"), post(LARGE, path="/v1/messages"))
    assert status(answer) == 413
    assert error(answer)["type"] == "request_too_large"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_what_no_rule_reads_may_be_larger(planes: Planes, is_chunked: bool) -> None:
    path = "/v1/files"
    pieces = (
        post_chunked(*[b"y" * 65_536] * 40, path=path)
        if is_chunked
        else [post(LARGE * 3, path=path)]
    )
    assert status(ask(planes.port("base"), *pieces)) == 200
    assert len(planes.origin.seen[0]) > 2 * LIMIT


def test_a_large_answer_is_no_large_request(planes: Planes) -> None:
    body = b"z" * (LIMIT * 9)
    planes.origin.says = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    assert ask(planes.port("base"), post(PASSED)).endswith(body)
