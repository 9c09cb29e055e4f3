"""How each API says a text or calls a tool: as the events of a stream, and as one JSON answer.

OpenAI's chat completions and Responses, Anthropic's messages, Google's generateContent, in the
shapes that the real ones send. Nothing here knows of sockets or of who asks.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """A tool call that the stand-in asks for."""

    tool: str
    arguments: dict[str, Any]


_numbers = itertools.count(1)


class Speaker:
    """One API's way to say a text or to call a tool, as events; and the same as one answer."""

    end = b""
    id_prefix = "call"

    def __init__(self, model: str, body: dict[str, Any]) -> None:
        """For one answer to `body`."""
        self.model = model
        self.body = body
        self.is_streaming = bool(body.get("stream"))
        self.number = next(_numbers)

    def text(self, pieces: list[str]) -> list[Event]:
        """The events that say `pieces`."""
        raise NotImplementedError

    def call(self, call: Call) -> list[Event]:
        """The events that ask for a tool."""
        raise NotImplementedError

    def whole(self, events: list[Event]) -> dict[str, Any]:
        """The same as one JSON answer."""
        raise NotImplementedError

    @property
    def call_id(self) -> str:
        """Of the tool call in this answer."""
        return f"{self.id_prefix}_{self.number}"

    def encode(self, event: Event) -> bytes:
        """An event as it goes over the wire."""
        name, data = event
        head = f"event: {name}\n" if name else ""
        return f"{head}data: {json.dumps(data)}\n\n".encode()


class ChatSpeaker(Speaker):
    """OpenAI chat completions."""

    end = b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return ("", self._frame("chat.completion.chunk", [choice]))

    def _frame(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        frame = {"id": f"chatcmpl-{self.number}", "object": kind, "created": 1_750_000_000}
        return frame | {"model": self.model, "choices": choices}

    def _usage(self) -> dict[str, Any]:
        return {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}

    def _tail(self, finish: str) -> list[Event]:
        tail = [self._chunk({}, finish)]
        if (self.body.get("stream_options") or {}).get("include_usage"):
            frame = self._frame("chat.completion.chunk", [])
            tail.append(("", frame | {"usage": self._usage()}))
        return tail

    def text(self, pieces: list[str]) -> list[Event]:
        head = self._chunk({"role": "assistant", "content": ""})
        return [head, *(self._chunk({"content": p}) for p in pieces), *self._tail("stop")]

    def call(self, call: Call) -> list[Event]:
        function = {"name": call.tool, "arguments": ""}
        entry = {"index": 0, "id": self.call_id, "type": "function", "function": function}
        head = {"role": "assistant", "content": None, "tool_calls": [entry]}
        rest = {"index": 0, "function": {"arguments": json.dumps(call.arguments)}}
        return [
            self._chunk(head),
            self._chunk({"tool_calls": [rest]}),
            *self._tail("tool_calls"),
        ]

    def whole(self, events: list[Event]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        finish = "stop"
        for choice in (c for _, data in events for c in data["choices"]):
            finish = choice["finish_reason"] or finish
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for entry in delta.get("tool_calls", []):
                if "id" in entry:
                    kept = {k: v for k, v in entry.items() if k != "index"}
                    message["tool_calls"] = [kept]
                else:
                    message["tool_calls"][0]["function"] |= entry["function"]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._frame("chat.completion", [choice]) | {"usage": self._usage()}


class ResponsesSpeaker(Speaker):
    """OpenAI Responses."""

    def encode(self, event: Event) -> bytes:
        name, data = event
        return super().encode((name, {"type": name} | data))

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        frame: dict[str, Any] = {"id": f"resp_{self.number}", "object": "response"}
        frame |= {"created_at": 1_750_000_000, "status": status, "model": self.model}
        frame |= {"error": None, "incomplete_details": None, "instructions": None}
        frame |= {"output": output, "parallel_tool_calls": True, "tools": [], "metadata": {}}
        frame |= {"tool_choice": "auto", "temperature": 1.0, "top_p": 1.0, "store": False}
        if status == "completed":
            details = {"input_tokens_details": {"cached_tokens": 0}}
            details |= {"output_tokens_details": {"reasoning_tokens": 0}}
            counts = {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29}
            frame["usage"] = counts | details
        return frame

    def _wrap(self, inner: list[Event], output: list[Any]) -> list[Event]:
        begun = self._response("in_progress", [])
        events = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
            *inner,
            ("response.completed", {"response": self._response("completed", output)}),
        ]
        return [(name, data | {"sequence_number": n}) for n, (name, data) in enumerate(events)]

    def text(self, pieces: list[str]) -> list[Event]:
        item = {"id": f"msg_{self.number}", "type": "message", "role": "assistant"}
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        part = empty | {"text": "".join(pieces)}
        done = item | {"status": "completed", "content": [part]}
        begun = item | {"status": "in_progress", "content": []}
        inner = [
            ("response.output_item.added", {"output_index": 0, "item": begun}),
            ("response.content_part.added", place | {"part": empty}),
            *(("response.output_text.delta", place | {"delta": p, "logprobs": []}) for p in pieces),
            ("response.output_text.done", place | {"text": part["text"], "logprobs": []}),
            ("response.content_part.done", place | {"part": part}),
            ("response.output_item.done", {"output_index": 0, "item": done}),
        ]
        return self._wrap(inner, [done])

    def call(self, call: Call) -> list[Event]:
        item = {"id": f"fc_{self.number}", "type": "function_call", "name": call.tool}
        item["call_id"] = self.call_id
        arguments = json.dumps(call.arguments)
        place = {"item_id": item["id"], "output_index": 0}
        begun = item | {"status": "in_progress", "arguments": ""}
        done = item | {"status": "completed", "arguments": arguments}
        inner = [
            ("response.output_item.added", {"output_index": 0, "item": begun}),
            ("response.function_call_arguments.delta", place | {"delta": arguments}),
            ("response.function_call_arguments.done", place | {"arguments": arguments}),
            ("response.output_item.done", {"output_index": 0, "item": done}),
        ]
        return self._wrap(inner, [done])

    def whole(self, events: list[Event]) -> dict[str, Any]:
        answer: dict[str, Any] = events[-1][1]["response"]
        return answer


class MessagesSpeaker(Speaker):
    """Anthropic messages."""

    id_prefix = "toolu"

    def encode(self, event: Event) -> bytes:
        name, data = event
        return super().encode((name, {"type": name} | data))

    def _message(self, content: list[Any], stop: str | None) -> dict[str, Any]:
        message = {"id": f"msg_{self.number}", "type": "message", "role": "assistant"}
        message |= {"model": self.model, "content": content, "stop_reason": stop}
        usage = {"input_tokens": 20, "output_tokens": 9 if stop else 1}
        usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return message | {"stop_sequence": None, "usage": usage}

    def _wrap(self, block: dict[str, Any], deltas: list[dict[str, Any]], stop: str) -> list[Event]:
        return [
            ("message_start", {"message": self._message([], None)}),
            ("content_block_start", {"index": 0, "content_block": block}),
            ("ping", {}),
            *(("content_block_delta", {"index": 0, "delta": d}) for d in deltas),
            ("content_block_stop", {"index": 0}),
            (
                "message_delta",
                {
                    "delta": {"stop_reason": stop, "stop_sequence": None},
                    "usage": {"output_tokens": 9},
                },
            ),
            ("message_stop", {}),
        ]

    def text(self, pieces: list[str]) -> list[Event]:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
        return self._wrap({"type": "text", "text": ""}, deltas, "end_turn")

    def call(self, call: Call) -> list[Event]:
        block = {"type": "tool_use", "id": self.call_id, "name": call.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        return self._wrap(block, [delta], "tool_use")

    def whole(self, events: list[Event]) -> dict[str, Any]:
        (block,) = (d["content_block"] for name, d in events if name == "content_block_start")
        deltas = [d["delta"] for name, d in events if name == "content_block_delta"]
        if block["type"] == "text":
            block = block | {"text": "".join(d["text"] for d in deltas)}
        else:
            block = block | {"input": json.loads("".join(d["partial_json"] for d in deltas))}
        (stop,) = (d["delta"]["stop_reason"] for name, d in events if name == "message_delta")
        return self._message([block], stop)


class GeminiSpeaker(Speaker):
    """Google's `generateContent`; the path says whether it streams."""

    def _piece(self, part: dict[str, Any], finish: str = "") -> Event:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        counts = {"promptTokenCount": 20, "candidatesTokenCount": 9, "totalTokenCount": 29}
        return ("", {"candidates": [candidate], "usageMetadata": counts})

    def text(self, pieces: list[str]) -> list[Event]:
        return [*(self._piece({"text": p}) for p in pieces), self._piece({"text": ""}, "STOP")]

    def call(self, call: Call) -> list[Event]:
        function = {"id": self.call_id, "name": call.tool, "args": call.arguments}
        return [self._piece({"functionCall": function}, "STOP")]

    def whole(self, events: list[Event]) -> dict[str, Any]:
        parts = [p for _, d in events for p in d["candidates"][0]["content"]["parts"]]
        if "text" in parts[0]:
            parts = [{"text": "".join(p["text"] for p in parts)}]
        answer = events[-1][1]
        answer["candidates"][0]["content"]["parts"] = parts
        return answer


SPEAKERS: dict[str, type[Speaker]] = {
    "/chat/completions": ChatSpeaker,
    "/responses": ResponsesSpeaker,
    "/messages": MessagesSpeaker,
    ":streamGenerateContent": GeminiSpeaker,
    ":generateContent": GeminiSpeaker,
}
