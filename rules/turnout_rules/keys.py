"""Stable keys: which conversation and which human turn a request belongs to.

Unsalted hashes, so that every proxy process computes the same. They are taken over texts, not
bytes: tools move cache markers from message to message between the requests of one turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.humantext import CONVERSATION_FIELD, TEXT_PARTS, Message, text_of
from turnout_rules.texts import BILLING_HEADER
from turnout_rules.unreadable import Unreadable
from turnout_rules.wrappers import join_parts

if TYPE_CHECKING:
    from turnout_rules.request import Request
    from turnout_rules.wrappers import Wrappers

_HEAD_BYTES = 1_024
_SHORT = 8 * 1024
_FIRST_CHUNK = 32 * 1024
_FIRST_MESSAGES = 16
_BILLING = BILLING_HEADER.encode()
_parse_next = json.JSONDecoder().raw_decode
_messages = msgspec.json.Decoder(list[Message])


def conversation_key(request: Request, wrappers: Wrappers | None) -> str:
    """The header's value, or system prompt, tools and first human message, for one client."""
    stated = request.headers.get(request.reading.conversation_header, "")
    if stated:
        return _digest(request.client, "header", stated)
    system, first = _beginning(request, wrappers)
    return _digest(
        request.client, request.endpoint, system, _head(request, "tools"), first or request.text
    )


def turn_key(request: Request, earlier: Iterator[Message] | None) -> str:
    """The conversation, what the person wrote last, and what was said before it.

    The text before tells two equal messages of one conversation ("go on") apart. Model and kind of
    side request count: tools send such about the same words, to a smaller model or the same.
    """
    if not request.text:
        return ""
    before = ""
    try:
        for message in earlier or ():
            before = text_of(message)[:512]
            if before:
                break
    except Unreadable:
        before = ""
    tasks = (request.stated_task, request.side_task)
    return _digest(request.conversation, request.model, *tasks, request.text, before)


def _beginning(request: Request, wrappers: Wrappers | None) -> tuple[bytes, str]:
    """The head of the system prompt, and the first human message's words."""
    system = _head(request, "system") + _head(request, "instructions")
    name = CONVERSATION_FIELD.get(request.endpoint)
    raw = request.fields.get(name) if name else None
    if raw is None or memoryview(raw)[0] != 0x5B:
        return system, request.text
    for role, text in _first_messages(memoryview(raw)):
        if role in ("system", "developer"):
            system += text[:_HEAD_BYTES].encode("utf-8", "replace")
        elif role == "user":
            words = wrappers.words_in(text) if wrappers is not None else text
            if words:
                return system, words[:_HEAD_BYTES]
    return system, ""


def _first_messages(array: memoryview) -> Iterator[tuple[str, str]]:
    """Role and text of the first messages, without touching the rest of a long array."""
    if len(array) <= _SHORT:
        yield from _first_messages_whole(array)
        return
    chunk = str(array[:_FIRST_CHUNK], "utf-8", "ignore")
    position = 1
    try:
        for _ in range(_FIRST_MESSAGES):
            while chunk[position] in " \t\r\n,":
                position += 1
            value, position = _parse_next(chunk, position)
            yield _role_and_text(value)
    except (ValueError, IndexError, RecursionError):
        if len(array) > _FIRST_CHUNK:
            yield from _first_messages_whole(array)


def _first_messages_whole(array: memoryview) -> Iterator[tuple[str, str]]:
    try:
        for message in _messages.decode(array)[:_FIRST_MESSAGES]:
            yield message.role or "", text_of(message)
    except (msgspec.DecodeError, Unreadable, RecursionError):
        return


def _role_and_text(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return "", ""
    content = value.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        # A strange `type` may be a list, which no set can be asked for.
        texts = [part.get("text") for part in parts if part.get("type") in tuple(TEXT_PARTS)]
        return value["role"], join_parts([text for text in texts if isinstance(text, str)])
    return value["role"], join_parts([content]) if isinstance(content, str) else ""


def _head(request: Request, name: str) -> bytes:
    raw = request.fields.get(name)
    if raw is None:
        return b""
    head = bytes(memoryview(raw)[:_HEAD_BYTES])
    if _BILLING in head:
        # Claude Code's first block changes with every request; what follows does not.
        head = bytes(memoryview(raw)[:]).partition(b"}")[2][:_HEAD_BYTES]
    return head


def _digest(*parts: str | bytes) -> str:
    raw = [part.encode("utf-8", "replace") if isinstance(part, str) else part for part in parts]
    lengths = str([len(part) for part in raw]).encode()
    return blake2b(b"".join((lengths, *raw)), digest_size=12).hexdigest()
