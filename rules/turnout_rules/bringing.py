"""What an event or a body of each API brings: content, an end, an error, or nothing yet. Pure.

One function a format, on decoded JSON. An answer that says why it ended (`finish_reason`,
`stop_reason`, a status) is an answer, even if it is empty; keys that are new to us count as content
as soon as they hold something, so that nothing is held back for being unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout_rules.endpoints import UNSIZED

_NO_CONTENT = frozenset(
    {"role", "type", "name", "id", "index", "annotations", "logprobs", "status"}
)
_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_CLOSING = frozenset({"response.completed", "response.incomplete", "response.cancelled"})
_CALLS = frozenset({"tool_calls", "function_call"})
_TALKING = frozenset({"text", "thinking", "message", "reasoning", "output_text", "reasoning_text"})
"""Blocks, items and parts that may still be empty when they are announced; others say something."""
_DEPTH = 8
"""What lies deeper is not looked into: it is something."""
_UNDER_WAY = frozenset({"queued", "in_progress"})


class Bringing(msgspec.Struct, frozen=True):
    """What one event brings. Nothing set: it is a part of the preamble."""

    has_content: bool = False
    is_end: bool = False
    """The closing event, or one that says why the answer ends: nothing is missing behind it."""
    is_answer: bool = False
    """Enough has been said to call it an answer, if an empty one."""
    error: Any = None
    """The upstream's own error: an object or a string, never empty."""


_NOTHING = Bringing()


def brings(endpoint: str, name: str, value: Any) -> Bringing:
    """What the stream's event called `name` (may be empty) with the JSON `value` brings."""
    if name == "error" or name == "response.error":
        return Bringing(error=value or name)
    if not isinstance(value, Mapping):
        return _NOTHING
    if (error := error_in(value)) is not None:
        return Bringing(error=error)
    if endpoint in UNSIZED:
        return Bringing(has_content=True)
    if endpoint == "messages":
        return _of_messages(value)
    if endpoint == "responses":
        return _of_responses(value)
    return _of_choices(value)


def body_brings(endpoint: str, value: Mapping[str, Any]) -> Bringing:
    """What a whole JSON answer brings."""
    if (error := error_in(value)) is not None:
        return Bringing(error=error)
    # Silence is heard as no text, and no document may rank: nothing is an answer there. What says
    # something in another API's words is the client's to judge.
    is_any = endpoint in UNSIZED or any(holds(value) for holds in _BODIES)
    has_content = is_any or _output_tokens(value) > 0
    return Bringing(has_content=has_content, is_answer=has_content, is_end=True)


def error_in(value: Mapping[str, Any]) -> Any:
    """The error that an event or a body reports, whatever its shape; None if it reports none."""
    if error := value.get("error"):
        return error
    kind = value.get("type")
    if kind in ("error", "response.error") or value.get("object") == "error":
        return value
    response = value.get("response") if kind == "response.failed" else value
    is_failed = isinstance(response, Mapping) and response.get("status") == "failed"
    if kind == "response.failed" or is_failed:
        return (isinstance(response, Mapping) and response.get("error")) or value
    for choice in _rows(value, "choices"):
        if choice.get("error") or choice.get("finish_reason") == "error":
            return choice.get("error") or "finish_reason error"
    return None


def _of_choices(value: Mapping[str, Any]) -> Bringing:
    """`chat` and `completions`: deltas, reasons to finish, the count of what was used."""
    has_content = is_finished = False
    for choice in _rows(value, "choices"):
        said = choice.get("delta") or choice.get("message")
        has_content |= bool(choice.get("text")) or _says(said)
        is_finished |= bool(choice.get("finish_reason"))
    is_answer = is_finished or _output_tokens(value) > 0
    return Bringing(has_content=has_content, is_end=is_finished, is_answer=is_answer)


def _of_messages(value: Mapping[str, Any]) -> Bringing:
    kind = value.get("type")
    if kind == "content_block_start":
        return Bringing(has_content=_is_said(value.get("content_block")))
    if kind == "content_block_delta":
        return Bringing(has_content=_says(value.get("delta")))
    if kind == "message_delta":
        delta = value.get("delta")
        is_end = isinstance(delta, Mapping) and bool(delta.get("stop_reason"))
        return Bringing(is_end=is_end, is_answer=is_end)
    if kind == "message_start":
        message = value.get("message")
        has_content = isinstance(message, Mapping) and bool(message.get("content"))
        return Bringing(has_content=has_content)
    return Bringing(is_end=True) if kind == "message_stop" else _NOTHING


def _of_responses(value: Mapping[str, Any]) -> Bringing:
    kind = str(value.get("type") or "")
    if kind in _OPENING or not kind.startswith("response."):
        return _NOTHING
    if kind in _CLOSING:
        response = value.get("response")
        is_answer = kind != "response.completed" or (
            isinstance(response, Mapping) and _is_response(response)
        )
        return Bringing(is_end=True, is_answer=is_answer)
    if kind.startswith("response.output_item."):
        return Bringing(has_content=_is_said(value.get("item")))
    if "_part." in kind:
        part = value.get("part")
        return Bringing(has_content=_says(part))
    if kind.endswith(".delta"):
        return Bringing(has_content=bool(value.get("delta")))
    if kind.endswith(("text.done", "refusal.done")):
        return Bringing(has_content=bool(value.get("text") or value.get("refusal")))
    return Bringing(has_content=True)


def _is_said(block: Any) -> bool:
    """Whether an announced block or item says something: a tool call does by being there."""
    if not isinstance(block, Mapping):
        return False
    return str(block.get("type")) not in _TALKING or _says(block)


def _says(part: Any, depth: int = _DEPTH) -> bool:
    """Whether any field but the formal ones holds something."""
    if not isinstance(part, Mapping):
        return bool(part)
    return any(
        bool(value) if key in _CALLS else _holds(value, depth)
        for key, value in part.items()
        if key not in _NO_CONTENT
    )


def _holds(value: Any, depth: int) -> bool:
    if depth == 0 or not isinstance(value, list | Mapping):
        return bool(value)
    if isinstance(value, list):
        return any(_holds(entry, depth - 1) for entry in value)
    return _says(value, depth - 1)


def _is_message(value: Mapping[str, Any]) -> bool:
    return bool(value.get("content") or value.get("stop_reason"))


def _is_response(value: Mapping[str, Any]) -> bool:
    status = str(value.get("status"))
    is_unfinished = status in _UNDER_WAY or status in ("incomplete", "cancelled")
    return is_unfinished or bool(value.get("output")) or _output_tokens(value) > 0


def _has_choices(value: Mapping[str, Any]) -> bool:
    return any(
        choice.get("message") or choice.get("finish_reason") or "text" in choice
        for choice in _rows(value, "choices")
    )


def _has_data(value: Mapping[str, Any]) -> bool:
    return bool(value.get("data") or value.get("embeddings"))


def _output_tokens(value: Mapping[str, Any]) -> int:
    usage = value.get("usage")
    if not isinstance(usage, Mapping):
        return 0
    counted = usage.get("completion_tokens") or usage.get("output_tokens")
    return counted if isinstance(counted, int) else 0


def _rows(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = value.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


_BODIES = (_has_choices, _is_message, _is_response, _has_data)
