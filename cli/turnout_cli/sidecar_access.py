"""Talking to the running sidecar from a command: finding it, asking it, wording its errors.

Plain `http.client`, for the commands that use it must answer at once; no proxy variable counts.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from turnout_rules.folders import runtime_folder

TIMEOUT_S = 10.0
TOKEN_VARIABLE = "TURNOUT_SIDECAR_TOKEN"  # noqa: S105 - the variable's name, no token


class SidecarError(Exception):
    """What the person is told in one line."""


def running_url() -> str:
    """The running sidecar's address; raises `SidecarError`."""
    try:
        record = json.loads((runtime_folder() / "sidecar.json").read_bytes())
        return f"http://127.0.0.1:{int(record['port'])}"
    except (OSError, ValueError, KeyError, TypeError):
        raise SidecarError("no sidecar is running; start one with `turnout up`") from None


def ask(url: str, method: str, path: str, timeout_s: float | None = TIMEOUT_S) -> dict[str, Any]:
    """One JSON exchange; raises `SidecarError` with the sidecar's own words."""
    connection, answer = _send(url, method, path, timeout_s)
    try:
        body = answer.read()
        value = json.loads(body) if body else {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SidecarError(f"the sidecar's answer broke off: {error}") from error
    finally:
        connection.close()
    return value if isinstance(value, dict) else {}


def follow(url: str, path: str) -> Iterator[str]:
    """Lines of a text answer as they come, without a limit of time."""
    connection, answer = _send(url, "GET", path, None)
    try:
        while line := answer.readline():
            yield line.decode("utf-8", "replace").rstrip("\n")
    except (OSError, http.client.HTTPException):
        return
    finally:
        connection.close()


def backend_path(name: str, action: str) -> str:
    """`/backends/<name>/<action>`; the slash of a target's name stays."""
    return f"/backends/{quote(name)}/{action}"


def _send(
    url: str, method: str, path: str, timeout_s: float | None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port or 80, timeout=timeout_s
    )
    headers = {"accept": "application/json"}
    if token := os.environ.get(TOKEN_VARIABLE):
        headers["x-turnout-token"] = token
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
    except TimeoutError:
        connection.close()
        raise SidecarError(f"the sidecar at {url} did not answer in time") from None
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise SidecarError(f"the sidecar at {url} does not answer ({error})") from error
    if answer.status >= 400:
        message = _message(answer)
        connection.close()
        raise SidecarError(message)
    return connection, answer


def _message(answer: http.client.HTTPResponse) -> str:
    try:
        return str(json.loads(answer.read())["error"]["message"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"the sidecar answered {answer.status}"
