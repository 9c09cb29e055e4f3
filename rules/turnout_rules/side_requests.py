"""Requests that a tool sends beside the conversation: titles, summaries, suggestions, probes.

They carry the person's text inside the tool's own sentences, or follow the conversation with a
sentence of the tool. Here they are told from the person's requests, and the person's words are
taken out; the list is `side_table`. Only whole shapes count: whoever quotes such a sentence is
still a person. Every look is linear, and nothing dear is done before a literal has matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import re2

from turnout_rules.side_shape import SideRequest
from turnout_rules.side_table import SIDE_REQUESTS

_HEAD_BYTES = 640
"""So much of the raw system prompt is looked at; those recorded begin within 400 bytes."""
_NOTHING = msgspec.Raw()
_SYSTEM_FIELDS = ("system", "instructions")
_SYSTEM_ROLES = ("system", "developer")
_NO_TOOLS = (b"[]", b"null", b"")

_BY_START = tuple(row for row in SIDE_REQUESTS if row.starts)
_STARTS = tuple(dict.fromkeys(row.starts for row in _BY_START))
_BY_SYSTEM = tuple(row for row in SIDE_REQUESTS if not row.starts)
_find_head = re2.compile(
    "|".join(
        dict.fromkeys(re2.escape(s.partition("\n")[0]) for row in _BY_SYSTEM for s in row.system)
    ).encode("ascii")
).search


class _Text(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str | None = None
    content: msgspec.Raw = _NOTHING


_content = msgspec.json.Decoder(str | list[_Text] | None)
_messages = msgspec.json.Decoder(list[_Message])


def recognise(
    text: str, fields: Mapping[str, msgspec.Raw], conversation: msgspec.Raw
) -> SideRequest | None:
    """The side request that a body is, or None: a person's. `text`: the last in a person's name.

    `conversation` is the raw list of messages. Never raises.
    """
    text = text.strip()
    if text.startswith(_STARTS):
        rows: Iterable[SideRequest] = _BY_START
    elif _may_begin_so(fields, conversation):
        rows = _BY_SYSTEM
    else:
        return None
    try:
        return next((r for r in rows if _is(r, text, fields, conversation)), None)
    except (msgspec.DecodeError, RecursionError):
        return None


def words_in(row: SideRequest, text: str) -> str:
    """What of `text` the person wrote; empty: nothing of it."""
    if not row.has_words_here:
        return ""
    if row.after:
        text = text.partition(row.after)[2]
    if row.until and row.until in text:
        text = text.rpartition(row.until)[0]
    return _turns_of_person(text, row.speakers) if row.speakers else text


def _may_begin_so(fields: Mapping[str, msgspec.Raw], conversation: msgspec.Raw) -> bool:
    """Whether a literal of a system prompt stands in the raw head of one."""
    raw = fields.get("system")
    head = bytes(memoryview(conversation if raw is None else raw)[:_HEAD_BYTES])
    return _find_head(head) is not None


def _is(
    row: SideRequest,
    text: str,
    fields: Mapping[str, msgspec.Raw],
    conversation: msgspec.Raw,
) -> bool:
    """Whether the whole shape holds, the cheap conditions first."""
    if not text.startswith(row.starts) or not text.endswith(row.ends):
        return False
    if row.starts and row.starts == row.ends and text != row.starts:
        return False
    if not _holds_in_order(text, row.holds):
        return False
    if not row.has_tools and bytes(fields.get("tools", b"")) not in _NO_TOOLS:
        return False
    if row.max_tokens and bytes(fields.get("max_tokens", b"")) != b"%d" % row.max_tokens:
        return False
    if row.is_alone and len([m for m in _messages.decode(conversation) if _speaks(m)]) != 1:
        return False
    if not row.system:
        return True
    return any(s.lstrip().startswith(row.system) for s in _system_texts(fields, conversation))


def _speaks(message: _Message) -> bool:
    return message.role is not None and message.role not in _SYSTEM_ROLES


def _holds_in_order(text: str, pieces: Iterable[str]) -> bool:
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def _system_texts(fields: Mapping[str, msgspec.Raw], conversation: msgspec.Raw) -> Iterator[str]:
    for name in _SYSTEM_FIELDS:
        if (raw := fields.get(name)) is not None:
            yield from _strings(raw)
    for message in _messages.decode(conversation):
        if message.role in _SYSTEM_ROLES:
            yield from _strings(message.content)


def _strings(raw: msgspec.Raw) -> list[str]:
    content = _content.decode(raw) if len(raw) else None
    if isinstance(content, str):
        return [content]
    return [part.text for part in content or ()]


def _turns_of_person(text: str, speakers: tuple[str, ...]) -> str:
    """The person's turns of a transcript, without their labels."""
    own, is_own = [], False
    for line in text.splitlines(keepends=True):
        if line.startswith(speakers):
            is_own = line.startswith(speakers[0])
            line = line[len(speakers[0]) :] if is_own else ""
        if is_own:
            own.append(line)
    return "".join(own)
