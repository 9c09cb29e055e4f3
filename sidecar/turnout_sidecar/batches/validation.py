"""Reading a batch's input file: every line checked before the first one runs. Pure but for reading.

All problems come with their line, at most `MAX_PROBLEMS` of them, in the words of OpenAI's API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

MAX_REQUESTS = 50_000
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_PROBLEMS = 50


class InputLine(msgspec.Struct):
    """A line of the input file, as far as it is looked at."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


class _Body(msgspec.Struct):
    stream: Any = None


class Row(msgspec.Struct, frozen=True):
    """A good line: its number, name and the request body, to the byte."""

    line: int
    custom_id: str
    body: bytes


def validate(
    path: Path, endpoint: str, keep: Callable[[Row], object]
) -> tuple[int, list[dict[str, Any]]]:
    """Hand every good row to `keep`; how many there were, and the file's problems.

    With problems nothing may run, so the caller must be able to take back what it kept.
    """
    count = 0
    problems: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, raw in _lines(path):
        if len(problems) >= MAX_PROBLEMS:
            break
        if count >= MAX_REQUESTS:
            problems.append(_problem(number, "too_many_requests", f"more than {MAX_REQUESTS}"))
            break
        found = _check(number, raw, endpoint, names)
        if isinstance(found, Row):
            count += 1
            names.add(found.custom_id)
            keep(found)
        else:
            problems.append(found)
    if not count and not problems:
        problems.append(_problem(None, "empty_file", "the input file has no requests"))
    return count, problems


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if raw.strip() or len(raw) > MAX_LINE_BYTES:
                yield number, raw
            while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE_BYTES + 1)  # the rest of an overlong line
                if not raw:
                    return


def _check(number: int, raw: bytes, endpoint: str, names: set[str]) -> Row | dict[str, Any]:
    if len(raw) > MAX_LINE_BYTES:
        return _problem(number, "line_too_long", f"the line is longer than {MAX_LINE_BYTES} bytes")
    try:
        line = msgspec.json.decode(raw, type=InputLine)
        body = msgspec.json.decode(line.body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _problem(number, "invalid_json_line", str(error))
    if not line.custom_id or len(line.custom_id) > 512:
        return _problem(number, "invalid_custom_id", "custom_id must have 1 to 512 characters")
    if line.custom_id in names:
        return _problem(number, "duplicate_custom_id", "custom_id is not unique", "custom_id")
    if line.method.upper() != "POST":
        return _problem(number, "invalid_method", "method must be POST", "method")
    if line.url != endpoint:
        return _problem(number, "mismatched_url", f"url must be {endpoint}", "url")
    if body.stream:
        return _problem(number, "stream_not_supported", "a batch cannot stream", "body.stream")
    return Row(number, line.custom_id, bytes(line.body))


def _problem(line: int | None, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "param": param, "line": line}
