"""Bodies shaped like coding agents' requests, for the benchmark: sizes and wrappers, made-up words.

Claude Code: Messages API, long system prompt and tools, the person's words behind reminders. Codex:
Responses API, a developer item, `AGENTS.md`, environment, long tool output; zstd by default.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from turnout_rules.benchmark import (
    Clock,
    Row,
    make_table,
    percentile,
    quiet_collector,
    run,
)

_WORDS_TEXT = (
    "def return value error file line import class test request response buffer index path "
    "config state when the this should read write because result of in and to a is not"
)
_WORDS = _WORDS_TEXT.split()


class Shape(msgspec.Struct, frozen=True):
    """One agent's request."""

    name: str
    path: str
    bodies: tuple[bytes, ...]
    compressed: bytes = b""
    """A body as it travels, where the agent compresses; empty: it does not."""


def measure_agents(
    clock: Clock, *, routes: Sequence[int] = (1_000,), seconds: float = 1.0
) -> Iterator[Row]:
    """A row for each agent's shape; decompression is measured and stated apart."""
    shapes = agent_shapes()
    for count in routes:
        table = make_table(count)
        with quiet_collector():
            for shape in shapes:
                times = run(clock, table, shape.bodies, {}, shape.path, seconds)
                decode_us = _decompression_us(clock, shape)
                size_kb = len(shape.bodies[0]) // 1_000
                p50, p99 = percentile(times, 50), percentile(times, 99)
                yield Row(count, size_kb, p50, p99, shape.name, decode_us)


def agent_shapes() -> list[Shape]:
    """Claude Code at 300 KB, Codex at 560 KB (zstd) and at 3.5 MB."""
    rng = random.Random(7)  # noqa: S311 - made-up words, no secrets
    claude = tuple(claude_code_body(rng, 300_000) for _ in range(4))
    codex = tuple(codex_body(rng, 560_000) for _ in range(4))
    large = (codex_body(rng, 3_500_000),)
    return [
        Shape("Claude Code", "/v1/messages?beta=true", claude),
        Shape("Codex zstd", "/v1/responses", codex, _zstd(codex[0])),
        Shape("Codex large", "/v1/responses", large, _zstd(large[0])),
    ]


def claude_code_body(rng: random.Random, size: int) -> bytes:
    """`/v1/messages`: system blocks, two dozen tools, a tool loop, the person's turn last."""
    tools = [_tool(rng, n, "input_schema") for n in range(24)]
    system = [{"type": "text", "text": _prose(rng, 14_000), "cache_control": {"type": "ephemeral"}}]
    reminder = f"<system-reminder>\n{_prose(rng, 2_000)}\n</system-reminder>"
    messages: list[dict[str, Any]] = []
    room = size - 80_000
    while room > 0:
        use = {"type": "tool_use", "id": f"toolu_{room}", "name": "Read", "input": {"path": "a.py"}}
        output = _code(rng, 6_000)
        messages += [
            {"role": "user", "content": [{"type": "text", "text": _prose(rng, 120)}]},
            {"role": "assistant", "content": [use]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": output}],
            },
        ]
        room -= len(output) + 500
    texts = [reminder, "fix the failing test in the parser, please"]
    messages.append({"role": "user", "content": [{"type": "text", "text": t} for t in texts]})
    body = {
        "model": "claude-sonnet-4-5",
        "messages": messages,
        "system": system,
        "tools": tools,
        "max_tokens": 32_000,
        "stream": True,
    }
    return json.dumps(body).encode()


def codex_body(rng: random.Random, size: int) -> bytes:
    """`/v1/responses`: instructions, items, long tool output after the person's words."""
    items: list[dict[str, Any]] = [
        _item("developer", _prose(rng, 4_000)),
        _item("user", f"# AGENTS.md instructions\n\n{_prose(rng, 6_000)}"),
        _item("user", "<environment_context>\n<cwd>/src</cwd>\n</environment_context>"),
        _item("user", "why does the scheduler drop the last request? 请帮我修复这个函数"),
    ]
    room = size - 40_000
    while room > 0:
        call = f"call_{room}"
        output = _code(rng, 9_000)
        items += [
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": call},
            {"type": "function_call_output", "call_id": call, "output": output},
        ]
        room -= len(output) + 300
    body = {
        "model": "gpt-5-codex",
        "instructions": _prose(rng, 12_000),
        "input": items,
        "tools": [_tool(rng, n, "parameters") | {"type": "function"} for n in range(8)],
        "store": False,
        "stream": True,
    }
    return json.dumps(body).encode()


def _decompression_us(clock: Clock, shape: Shape) -> float:
    if not shape.compressed:
        return 0.0
    from turnout_rules.decoding import decode_body

    times = []
    for _ in range(9):
        started = clock()
        decode_body(shape.compressed, "zstd", 64 * 1024 * 1024)
        times.append(clock() - started)
    return percentile(sorted(times), 50)


def _zstd(body: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    packed: bytes = zstd.compress(body)
    return packed


def _item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _tool(rng: random.Random, number: int, schema: str) -> dict[str, Any]:
    properties = {
        f"field_{n}": {"type": "string", "description": _prose(rng, 200)} for n in range(6)
    }
    return {
        "name": f"tool_{number}",
        "description": _prose(rng, 1_000),
        schema: {"type": "object", "properties": properties},
    }


def _prose(rng: random.Random, chars: int) -> str:
    return " ".join(rng.choices(_WORDS, k=chars // 5))[:chars]


def _code(rng: random.Random, chars: int) -> str:
    line = [f"{n:>5}\t{' '.join(rng.choices(_WORDS, k=9))}" for n in range(chars // 55)]
    return "\n".join(line)
