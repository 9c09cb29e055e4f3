"""Changes a flow as its plan says: plain assignments that cannot fail half-way.

Decides nothing. In regular and reverse mode mitmproxy chooses the connection from these values.
"""

from __future__ import annotations

from mitmproxy import http

from turnout_addon.guard import is_loopback_host
from turnout_addon.hosts import Origin, parse_origin
from turnout_addon.plans import Answer, Send


def apply(flow: http.HTTPFlow, send: Send, *, company_proxy: str) -> None:
    """Make the request the planned one."""
    request = flow.request
    fields = [(_encode(name), _encode(value)) for name, value in send.fields]
    authority = b""
    if request.is_http2:
        authority = send.origin.host_header.encode()
        fields = [field for field in fields if field[0] != b"Host"]
    data = request.data
    # mitmproxy's setters look into headers and cost six times as much.
    data.headers = http.Headers(fields)
    data.scheme = send.origin.scheme.encode()
    data.host = send.origin.host
    data.port = send.origin.port
    data.authority = authority
    data.path = _encode(send.path)
    data.content = send.body
    data.trailers = None
    choose_way(flow, send.origin, company_proxy)


def redirect(flow: http.HTTPFlow, origin: Origin, *, company_proxy: str) -> None:
    """Lead a request of the reverse listener to its origin, otherwise as it came."""
    data = flow.request.data
    data.scheme = origin.scheme.encode()
    data.host = origin.host
    data.port = origin.port
    if origin.path:
        path = flow.request.path
        if origin.path.endswith("/v1") and path.startswith("/v1/"):
            path = path.removeprefix("/v1")
        data.path = _encode(origin.path + path)
    flow.request.headers["Host"] = origin.host_header
    choose_way(flow, origin, company_proxy)


def answer(refusal: Answer) -> http.Response:
    """The proxy's own response."""
    response = json_answer(refusal.status, refusal.body)
    if refusal.status == 405:
        response.headers["allow"] = "POST"
    if refusal.retry_after_s is not None:
        response.headers["retry-after"] = str(refusal.retry_after_s)
    return response


def json_answer(status: int, body: bytes) -> http.Response:
    """A response of ours with a JSON body."""
    return http.Response.make(status, body, {"content-type": "application/json"})


def choose_way(flow: http.HTTPFlow, origin: Origin, company_proxy: str) -> None:
    """Behind a company proxy, everything but this machine's own servers goes through it.

    Wanted for every request: mitmproxy hands the way of one on to the next of its connection.
    """
    if not company_proxy:
        return
    way = parse_origin(company_proxy)
    if is_loopback_host(origin.host):
        flow.server_conn.via = None
        if not flow.request.is_http2:
            flow.request.data.authority = b""  # servers, unlike proxies, want no absolute form
    elif way.scheme == "https":
        flow.server_conn.via = ("https", (way.host, way.port))
    else:
        flow.server_conn.via = ("http", (way.host, way.port))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
