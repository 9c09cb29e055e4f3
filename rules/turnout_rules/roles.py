"""The `developer` role and several system messages, for chat templates that know neither.

Messages that keep their role keep their bytes. Where text must be joined, it becomes one leading
system message (chat) or the `instructions` (Responses); messages with other content than text are
left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.humantext import Message, text_of
from turnout_rules.splicing import splice
from turnout_rules.unreadable import Unreadable

if TYPE_CHECKING:
    from turnout_rules.request import Request

_FIELD = {"chat": "messages", "responses": "input"}
_SYSTEM_ROLE = re.compile(rb'"role"\s*:\s*"(?:system|developer)"')
_list = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(Message)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_string = msgspec.json.Decoder(str | None)
_parts = msgspec.json.Decoder(list[dict[str, Any]])
_encode = msgspec.json.encode


def adjust_roles(request: Request, wanted: Any, changes: dict[str, bytes | None]) -> list[str]:
    """Map `developer` to `system`; with `merge`, join all system text into one leading place."""
    name = _FIELD.get(request.endpoint)
    if name is None or name not in request.fields:
        return []
    data = changes.get(name) or bytes(request.fields[name])
    has_developer = b'"developer"' in data
    if data[:1] != b"[" or not (has_developer or _SYSTEM_ROLE.search(data)):
        return []
    try:
        messages = _list.decode(data)
        roles = [_message.decode(message) for message in messages]
        if wanted == "merge" and _must_merge(request, roles):
            return _merge(request, name, messages, roles, changes)
        return _map(name, messages, roles, changes) if has_developer else []
    except (msgspec.DecodeError, Unreadable, RecursionError):
        return []


def _is_system(message: Message) -> bool:
    return message.role in ("system", "developer")


def _must_merge(request: Request, roles: list[Message]) -> bool:
    places = [index for index, message in enumerate(roles) if _is_system(message)]
    if not places or not all(_is_text(roles[index]) for index in places):
        return False
    if request.endpoint == "responses" and _instructions(request):
        return True
    return places != [0]


def _is_text(message: Message) -> bool:
    content = bytes(message.content)
    if content[:1] != b"[":
        return content[:1] == b'"'
    return all(part.get("type") in ("text", "input_text") for part in _parts.decode(content))


def _instructions(request: Request) -> str:
    raw = request.fields.get("instructions")
    return (_string.decode(raw) or "") if raw is not None else ""


def _map(
    name: str,
    messages: list[msgspec.Raw],
    roles: list[Message],
    changes: dict[str, bytes | None],
) -> list[str]:
    if not any(message.role == "developer" for message in roles):
        return []
    changed = [
        splice(bytes(raw), _fields.decode(raw), {"role": b'"system"'})
        if message.role == "developer"
        else bytes(raw)
        for raw, message in zip(messages, roles, strict=True)
    ]
    changes[name] = b"[" + b",".join(changed) + b"]"
    return ["developer role mapped to system"]


def _merge(
    request: Request,
    name: str,
    messages: list[msgspec.Raw],
    roles: list[Message],
    changes: dict[str, bytes | None],
) -> list[str]:
    texts = [text_of(message) for message in roles if _is_system(message)]
    rest = [
        bytes(raw) for raw, message in zip(messages, roles, strict=True) if not _is_system(message)
    ]
    if request.endpoint == "responses":
        texts.insert(0, _instructions(request))
        changes["instructions"] = _encode(_joined(texts))
    else:
        rest.insert(0, _encode({"role": "system", "content": _joined(texts)}))
    changes[name] = b"[" + b",".join(rest) + b"]"
    return ["system messages merged"]


def _joined(texts: list[str]) -> str:
    return "\n\n".join(filter(None, texts))
