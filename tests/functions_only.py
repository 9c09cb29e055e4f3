"""An upstream that knows plain function tools and nothing else, as small servers are.

It answers 400 to any other kind of tool or item, and plays a script of calls: one a request, by the
number of results that came back since the person's last words, then a message. Streams come in
pieces that respect neither events nor characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from proxy_kit import Seen

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOOL_KEYS = {"type", "name", "description", "parameters", "strict"}
_ITEM_KEYS = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
}


class Refused(Exception):
    """What the client is told."""


@dataclass
class FunctionsOnly:
    """Its `reply` serves `/responses` and `/chat/completions`."""

    script: list[tuple[str, str]] = field(default_factory=list)
    """The end of a function's name, and the arguments as the model writes them."""
    text: str = "done"
    piece_chars: int = 3
    """Characters of the arguments in one delta."""
    write_bytes: int = 7
    """Bytes of a stream written at once."""
    reasons: bool = False
    """Thinks aloud before each call, as reasoning models do."""
    refusals: list[str] = field(default_factory=list)

    async def reply(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        body = seen.json
        is_chat = request.path.endswith("/chat/completions")
        try:
            tools = _check_chat(body) if is_chat else _check_responses(body)
            call = self._next_call(tools, _results(body, is_chat))
        except Refused as refused:
            self.refusals.append(str(refused))
            error = {"message": str(refused), "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=400)
        if is_chat:
            whole, events = _chat(body, call, self.text), _chat_events(body, call, self)
        else:
            output = self._output(call, _results(body, is_chat))
            whole, events = _response(body, output), _events(body, output, self.piece_chars)
        if not body.get("stream"):
            return web.json_response(whole)
        return await self._stream(request, b"".join(events))

    async def _stream(self, request: web.Request, data: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for at in range(0, len(data), self.write_bytes):
            await response.write(data[at : at + self.write_bytes])
        return response

    def _next_call(self, tools: list[str], results: int) -> tuple[str, str] | None:
        if results >= len(self.script):
            return None
        ending, arguments = self.script[results]
        name = next((name for name in tools if name.endswith(ending)), None)
        if name is None:
            raise Refused(f"no tool {ending} among {tools}")
        return name, arguments

    def _output(self, call: tuple[str, str] | None, results: int) -> list[dict[str, Any]]:
        output: list[dict[str, Any]] = []
        if self.reasons:
            thought = {"type": "reasoning_text", "text": "hm"}
            item = {"type": "reasoning", "id": f"rs_{results}", "summary": []}
            output.append({**item, "content": [thought], "status": "completed"})
        if call is None:
            part = {"type": "output_text", "text": self.text, "annotations": []}
            message = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
            return [*output, {**message, "status": "completed"}]
        item = {"type": "function_call", "id": f"fc_{results}", "call_id": f"call_{results}"}
        return [*output, {**item, "name": call[0], "arguments": call[1], "status": "completed"}]


def _check_responses(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools") or []
    for tool in tools:
        _demand(tool["type"] == "function", f"tool type {tool['type']}")
        _demand(tool.keys() <= _TOOL_KEYS, f"tool fields {sorted(tool)}")
    names = [tool["name"] for tool in tools]
    _check_names(names)
    items = body["input"] if isinstance(body["input"], list) else []
    for item in items:
        kind = item.get("type", "message")
        _demand(kind in _ITEM_KEYS, f"item type {kind}")
        _demand(item.keys() <= _ITEM_KEYS[kind], f"{kind} with {sorted(item)}")
        if kind == "function_call":
            _demand(isinstance(json.loads(item["arguments"]), dict), "arguments")
        if kind == "function_call_output":
            _demand(isinstance(item["output"], str), "output")
    choice = body.get("tool_choice", "auto")
    _check_choice(choice, choice.get("name") if isinstance(choice, dict) else "", names)
    return names


def _check_chat(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools") or []
    for tool in tools:
        _demand(tool.keys() == {"type", "function"}, f"tool {sorted(tool)}")
        _demand(tool["function"].keys() <= _TOOL_KEYS, f"tool fields {sorted(tool['function'])}")
    names = [tool["function"]["name"] for tool in tools]
    _check_names(names)
    for message in body["messages"]:
        for call in message.get("tool_calls", []):
            _demand(call.keys() == {"id", "type", "function"}, f"call {sorted(call)}")
    choice = body.get("tool_choice", "auto")
    wanted = choice["function"]["name"] if isinstance(choice, dict) else ""
    _check_choice(choice, wanted, names)
    return names


def _check_choice(choice: Any, wanted: str, names: list[str]) -> None:
    if isinstance(choice, dict):
        _demand(choice.get("type") == "function" and wanted in names, f"tool_choice {choice}")
    else:
        _demand(choice in ("auto", "none", "required"), f"tool_choice {choice}")


def _check_names(names: list[str]) -> None:
    for name in names:
        _demand(_NAME.fullmatch(name) is not None, f"tool name {name}")
    _demand(len(set(names)) == len(names), "two tools of one name")


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise Refused(f"functions only: {what}")


def _results(body: dict[str, Any], is_chat: bool) -> int:
    """Results of tools since the person's last words."""
    items = body["messages"] if is_chat else body["input"]
    count = 0
    for item in items if isinstance(items, list) else []:
        if item.get("role") == "user":
            count = 0
        elif item.get("role") == "tool" or item.get("type") == "function_call_output":
            count += 1
    return count


def _response(body: dict[str, Any], output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    head = {"id": "resp_1", "object": "response", "status": "completed", "model": body["model"]}
    return {**head, "output": output, "usage": usage}


def _events(
    body: dict[str, Any], output: list[dict[str, Any]], piece_chars: int
) -> Iterator[bytes]:
    number = iter(range(10_000))

    def event(kind: str, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": next(number), **fields}
        return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()

    started = {**_response(body, []), "status": "in_progress"}
    yield event("response.created", response=started)
    yield b": keep-alive\n\n"
    for at, item in enumerate(output):
        place = {"output_index": at, "item_id": item["id"]}
        empty = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        begun = {**item, **empty, "status": "in_progress"}
        yield event("response.output_item.added", output_index=at, item=begun)
        if item["type"] == "function_call":
            text = item["arguments"]
            for piece in range(0, len(text), piece_chars):
                delta = text[piece : piece + piece_chars]
                yield event("response.function_call_arguments.delta", **place, delta=delta)
            yield event("response.function_call_arguments.done", **place, arguments=text)
        yield event("response.output_item.done", output_index=at, item=item)
    yield event("response.completed", response=_response(body, output))


def _chat_message(call: tuple[str, str] | None, text: str) -> dict[str, Any]:
    if call is None:
        return {"role": "assistant", "content": text}
    function = {"name": call[0], "arguments": call[1]}
    tool_call = {"id": "call_1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call]}


def _chat(body: dict[str, Any], call: tuple[str, str] | None, text: str) -> dict[str, Any]:
    reason = "stop" if call is None else "tool_calls"
    choice = {"index": 0, "message": _chat_message(call, text), "finish_reason": reason}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"]}
    return {**head, "choices": [choice]}


def _chat_events(
    body: dict[str, Any], call: tuple[str, str] | None, upstream: FunctionsOnly
) -> Iterator[bytes]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        data = json.dumps({**head, "choices": [choice]}, ensure_ascii=False)
        return f"data: {data}\n\n".encode()

    message = _chat_message(call, upstream.text)
    if call is None:
        yield chunk(message)
    else:
        first = message["tool_calls"][0]
        name, text = call
        opened = {"index": 0, **first, "function": {"name": name, "arguments": ""}}
        yield chunk({"role": "assistant", "content": None, "tool_calls": [opened]})
        for at in range(0, len(text), upstream.piece_chars):
            piece = {"arguments": text[at : at + upstream.piece_chars]}
            yield chunk({"tool_calls": [{"index": 0, "function": piece}]})
    yield chunk({}, "stop" if call is None else "tool_calls")
    yield b"data: [DONE]\n\n"
