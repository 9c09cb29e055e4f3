"""Takes the fields out of a body that its target's provider refuses, each change with a name.

The rows are data in `refused_fields`. Objects that hold no such field keep their bytes; where a
body does not have the shape that a row speaks of, it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import re2

from turnout_rules.providers import is_reasoning_model
from turnout_rules.refused_fields import REFUSED, Refused
from turnout_rules.splicing import Fields, splice
from turnout_rules.unreadable import Unreadable

if TYPE_CHECKING:
    from turnout_rules.request import Request

Changes = dict[str, bytes | None]

_OFF = (b"null", b"false")
_any = msgspec.json.Decoder()
_fields = msgspec.json.Decoder(Fields)
_list = msgspec.json.Decoder(list[msgspec.Raw])
_string = msgspec.json.Decoder(str)


class _Found:
    """What a walk over one field of the body found to change."""

    def __init__(self, needle: bytes = b"") -> None:
        self.names: dict[str, None] = {}
        self.needle = needle
        """Entries without these bytes need not be taken apart."""


class _Step(msgspec.Struct, frozen=True):
    """A row, taken apart once."""

    row: Refused
    inner: tuple[str, ...]
    """Below the body's own field: `[]` for every entry, else a field's name."""
    needle: bytes
    """Without these bytes there is nothing to do; empty: always look."""


Rows = Mapping[str, tuple[_Step, ...]]
"""By the body's own field."""


@lru_cache(maxsize=1_024)
def refused_by(provider: str, model: str, endpoint: str) -> Rows:
    """The rows that count for a model of a provider and an endpoint."""
    found: dict[str, list[_Step]] = {}
    for row in REFUSED.get(provider, ()):
        if row.endpoint == endpoint and _refuses(row, model):
            top, *inner = row.path.replace("[]", ".[]").split(".")
            needle = b"" if row.keeps or not inner else f'"{row.key}"'.encode()
            found.setdefault(top, []).append(_Step(row, tuple(inner), needle))
    return {top: tuple(steps) for top, steps in found.items()}


def _refuses(row: Refused, model: str) -> bool:
    if row.models and re2.search(row.models, model) is None:
        return False
    return not row.thinks or is_reasoning_model(model)


def drop_refused(request: Request, rows: Rows, changes: Changes) -> list[str]:
    """Make the changes that `rows` ask for, after those in `changes`; their names."""
    found = _Found()
    for top in [field for field in request.fields if field in rows]:
        value = changes.get(top, request.fields[top])
        data = None if value is None else bytes(value)
        for step in rows[top]:
            if data is None:
                break
            if not (step.row.beside and _is_on(request, step.row.beside)):
                data = _take_out(request, step, data, changes, found)
    return list(found.names)


def _take_out(
    request: Request, step: _Step, data: bytes, changes: Changes, found: _Found
) -> bytes | None:
    """What is left of a field of the body; None: nothing."""
    if not step.inner:
        return _drop_top(request, step.row, data, changes, found)
    if step.needle not in data or (changed := _walk(data, step, found)) is None:
        return data
    changes[step.row.path.partition("[")[0].partition(".")[0]] = changed
    return changed


def _is_on(request: Request, field: str) -> bool:
    raw = request.fields.get(field)
    return raw is not None and bytes(raw) not in _OFF


def _drop_top(
    request: Request, row: Refused, data: bytes, changes: Changes, found: _Found
) -> bytes | None:
    if data in row.fits:
        return data
    changes[row.path] = None
    if row.becomes and row.becomes not in request.fields and data != b"null":
        changes[row.becomes] = data
        found.names[f"{row.path} renamed to {row.becomes}"] = None
    else:
        found.names[f"{row.path} dropped"] = None
    return None


def _walk(data: bytes, step: _Step, found: _Found) -> bytes | None:
    """`data` without what the row refuses; None: it stays as it is."""
    inside = _Found(step.needle)
    try:
        changed = _descend(data, step.inner, step.row, inside)
    except (msgspec.DecodeError, Unreadable, RecursionError):
        return None
    found.names |= inside.names
    return changed


def _descend(data: bytes, steps: Sequence[str], row: Refused, found: _Found) -> bytes | None:
    if not steps:
        return _close(data, row, found)
    if steps[0] == "[]":
        return _each(data, steps[1:], row, found)
    if data[:1] != b"{":
        return None
    fields = _fields.decode(data)
    if not _concerns(fields, row) or steps[0] not in fields:
        return None
    if len(steps) == 1:
        return _drop(data, fields, row, found)
    below = _descend(bytes(fields[steps[0]]), steps[1:], row, found)
    return None if below is None else splice(data, fields, {steps[0]: below})


def _each(data: bytes, steps: Sequence[str], row: Refused, found: _Found) -> bytes | None:
    if data[:1] != b"[":
        return None
    entries = [bytes(entry) for entry in _list.decode(data)]
    needle = found.needle
    changed = [_descend(e, steps, row, found) if needle in e else None for e in entries]
    if all(entry is None for entry in changed):
        return None
    kept = (old if new is None else new for old, new in zip(entries, changed, strict=True))
    return b"[" + b",".join(kept) + b"]"


def _concerns(fields: Fields, row: Refused) -> bool:
    """Whether the row speaks of a message of this role."""
    raw = fields.get("role")
    if not row.roles or raw is None:
        return True
    return bytes(raw)[:1] == b'"' and _string.decode(raw) in row.roles


def _drop(data: bytes, fields: Fields, row: Refused, found: _Found) -> bytes | None:
    value = bytes(fields[row.key])
    if value in row.fits:
        return None
    name = row.path.replace("[]", "")
    changes: Changes = {row.key: None}
    if row.becomes and row.becomes not in fields:
        changes[row.becomes] = value
        found.names[f"{name} renamed to {row.becomes}"] = None
    else:
        found.names[f"{name} dropped"] = None
    return splice(data, fields, changes)


def _close(data: bytes, row: Refused, found: _Found) -> bytes | None:
    """An object that may hold nothing but `keeps`."""
    if data[:1] != b"{":
        return None
    fields = _fields.decode(data)
    extra = [key for key in fields if key not in row.keeps] if _concerns(fields, row) else []
    if not extra:
        return None
    name = row.path.replace("[]", "")
    found.names |= dict.fromkeys(f"{name}.{key[:40]} dropped" for key in extra)
    return splice(data, fields, dict.fromkeys(extra))


def tool_choices(request: Request, provider: str, model: str) -> Mapping[str, str] | None:
    """What becomes of `tool_choice` for this model; None: what its provider's preset says.

    Thinking is on by default in DeepSeek's and Moonshot's models, and refuses a forced tool.
    """
    if provider not in ("deepseek", "moonshot") or "tool_choice" not in request.fields:
        return None
    if model == "deepseek-chat" or b'"disabled"' in bytes(request.fields.get("thinking", b"")):
        return {"any": "required", "allowed_tools": "mode"}
    if provider == "moonshot" and re2.search(r"(?i)kimi-k[3-9]", model):
        return {"any": "required", "function": "required", "allowed_tools": "mode"}
    return None


def adjust_tool_choice(request: Request, wanted: Any, changes: Changes) -> list[str]:
    """Replace a form of `tool_choice` as `wanted` (form to form, `mode`, or None) says."""
    raw = request.fields.get("tool_choice")
    if raw is None or request.endpoint != "chat":
        return []
    choice = _any.decode(raw)
    form = choice.get("type") if isinstance(choice, dict) else choice
    if wanted == "drop":
        changes["tool_choice"] = None
        return ["tool_choice dropped"]
    if not isinstance(form, str) or not isinstance(wanted, Mapping) or form not in wanted:
        return []
    becomes = _mode(choice) if wanted[form] == "mode" else wanted[form]
    changes["tool_choice"] = None if becomes is None else msgspec.json.encode(becomes)
    return [f"tool_choice {form} mapped to {becomes}" if becomes else "tool_choice dropped"]


def _mode(choice: Any) -> str:
    allowed = choice.get("allowed_tools") if isinstance(choice, dict) else None
    mode = allowed.get("mode") if isinstance(allowed, dict) else None
    return mode if mode in ("auto", "required") else "auto"
