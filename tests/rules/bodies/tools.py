"""Request bodies shaped as each tool sends them, of any size. Generated: no megabyte files."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

WORDS = [
    "the",
    "quick",
    "function",
    "returns",
    "a",
    "debug",
    "value",
    "when",
    "the",
    "file",
    "path",
    "is",
    "absolute",
    "and",
    "code",
    "is",
    "written",
]
ASK = "Wie spät ist es in Tokio?"
"""The person's words in every body: shares no word with the noise around it."""


def noise(size: int) -> str:
    """Harness-like text with quotes, newlines and escapes, full of routing words."""
    line = " ".join(WORDS) + ' "quoted" \\n C:\\path 翻译\n'
    return (line * (size // len(line) + 1))[:size]


def dumps(body: dict[str, Any], *, ascii_only: bool = False, compact: bool = True) -> bytes:
    separators = (",", ":") if compact else None
    return json.dumps(body, ensure_ascii=ascii_only, separators=separators).encode()


def json_tools(size: int, style: str) -> list[dict[str, Any]]:
    """Tool definitions of about `size` bytes."""
    tools = []
    for number in range(max(1, size // 2_000)):
        schema = {
            "type": "object",
            "properties": {"path": {"type": "string", "description": noise(300)}},
            "required": ["path"],
        }
        name, description = f"tool_{number}", noise(1_200)
        if style == "chat":
            function = {"name": name, "description": description, "parameters": schema}
            tools.append({"type": "function", "function": function})
        elif style == "responses":
            tools.append(
                {"type": "function", "name": name, "description": description, "parameters": schema}
            )
        else:
            tools.append({"name": name, "description": description, "input_schema": schema})
    return tools


def claude_code(size: int, *, loops: int = 2, ask: str = ASK) -> dict[str, Any]:
    """Claude Code: reminders before the words, then a tool loop of `loops` rounds."""
    reminder = f"<system-reminder>\n{noise(1_500)}\n</system-reminder>"
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": reminder},
                {"type": "text", "text": ask, "cache_control": {"type": "ephemeral"}},
            ],
        }
    ]
    each = max(100, size // 2 // max(1, loops))
    for number in range(loops):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool_0", "input": {"p": "x"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": noise(each)}
        messages.append(
            {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, call]}
        )
        messages.append({"role": "user", "content": [result, {"type": "text", "text": reminder}]})
    return {
        "model": "claude-sonnet-4-5",
        "messages": messages,
        "system": [{"type": "text", "text": "You are Claude Code. " + noise(size // 20)}],
        "tools": json_tools(size // 2, "messages"),
        "max_tokens": 32_000,
        "metadata": {"user_id": "user_abc"},
        "stream": True,
    }


def codex(size: int, *, loops: int = 3, ask: str = ASK) -> dict[str, Any]:
    """Codex: developer message, AGENTS.md, environment, the words, then function calls."""

    def user(text: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text}]
        return {"type": "message", "role": "user", "content": content}

    agents = (
        f"# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\n{noise(2_000)}\n</INSTRUCTIONS>"
    )
    environment = "<environment_context>\n  <cwd>/repo code</cwd>\n</environment_context>"
    items: list[dict[str, Any]] = [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": noise(500)}],
        },
        user(agents),
        user(environment),
        user(ask),
    ]
    for number in range(loops):
        items.append(
            {
                "type": "function_call",
                "name": "shell",
                "arguments": '{"command":["ls"]}',
                "call_id": f"call_{number}",
            }
        )
        output = noise(max(100, size // 2 // loops))
        items.append(
            {"type": "function_call_output", "call_id": f"call_{number}", "output": output}
        )
    return {
        "model": "gpt-5-codex",
        "instructions": noise(size // 10),
        "input": items,
        "tools": json_tools(size // 2, "responses"),
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
    }


def aider(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """aider: files as user messages, and the edit-format reminder behind the words."""
    rules = (
        "# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:\n"
        "1. The *FULL* file path alone on a line, verbatim. Debug the code.\n" + noise(800)
    )
    files = "I have *added these files to the chat* so you can go ahead and edit them.\n" + noise(
        size
    )
    return {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Act as an expert software developer. " + noise(1_000)},
            {"role": "user", "content": files},
            {"role": "assistant", "content": "Ok, any changes I propose will be to those files."},
            {"role": "user", "content": f"{ask}\n\n{rules}"},
        ],
        "stream": True,
        "temperature": 0,
    }


_DETAILS = (
    f"<environment_details>\n# VSCode Open Tabs\ndebug.py {noise(400)}\n</environment_details>"
)


def _cline_like(first: str, size: int) -> dict[str, Any]:
    return {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": noise(size)},
            {
                "role": "user",
                "content": [{"type": "text", "text": first}, {"type": "text", "text": _DETAILS}],
            },
            {"role": "assistant", "content": "<read_file><path>a.py</path></read_file>"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "[read_file for 'a.py'] Result:"},
                    {"type": "text", "text": noise(1_000)},
                    {"type": "text", "text": _DETAILS},
                ],
            },
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def cline(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """Cline as of late: `<user_input>` and file contents, tool results as text."""
    files = f'<file_content path="a.py">\n{noise(300)}\n</file_content>'
    return _cline_like(f'<user_input mode="act">\n{ask}\n</user_input>\n\n{files}', size)


def old_cline(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """Cline before: `<task>`."""
    return _cline_like(f"<task>\n{ask}\n</task>", size)


def roo(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """Roo: `<user_message>`, also inside a tool result."""
    body = _cline_like("<user_message>\ncode something\n</user_message>", size)
    body["messages"].append({"role": "assistant", "content": "<ask_followup_question/>"})
    answer = (
        f"[ask_followup_question for 'Which?'] Result:\n\n<user_message>\n{ask}\n</user_message>"
    )
    body["messages"].append(
        {
            "role": "user",
            "content": [{"type": "text", "text": answer}, {"type": "text", "text": _DETAILS}],
        }
    )
    return body


def continue_dev(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """Continue: plain parts and a long system message."""
    return {
        "messages": [
            {"role": "system", "content": f"<important_rules>{noise(size)}</important_rules>"},
            {"role": "user", "content": [{"type": "text", "text": ask}]},
        ],
        "model": "gpt-4o",
        "max_tokens": 4_096,
        "stream": True,
    }


def open_webui(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """Open WebUI with retrieval: the template holds the words in `<user_query>`."""
    template = (
        "### Task:\nRespond to the user query using the provided context.\n\n### Guidelines:\n"
        f'- code, debug\n\n<context>\n<source id="1">{noise(size)}</source>\n</context>\n\n'
        f"<user_query>\n{ask}\n</user_query>\n"
    )
    return {
        "stream": True,
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": template}],
    }


def langchain(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """LangChain: the words, a tool call, a tool result at the end."""
    call = {"type": "function", "id": "call_1", "function": {"name": "tool_0", "arguments": "{}"}}
    return {
        "messages": [
            {"content": noise(500), "role": "system"},
            {"content": ask, "role": "user"},
            {"content": None, "role": "assistant", "tool_calls": [call]},
            {"content": noise(size), "role": "tool", "tool_call_id": "call_1"},
        ],
        "model": "gpt-4o-mini",
        "stream": False,
        "tools": json_tools(2_000, "chat"),
    }


def plain_sdk(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """An SDK's plain request."""
    return {
        "messages": [{"role": "system", "content": noise(size)}, {"role": "user", "content": ask}],
        "model": "gpt-4o",
    }


def responses_text(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """The Responses API with a plain string."""
    return {"model": "gpt-4.1", "instructions": noise(size), "input": ask}


def completions_text(size: int, *, ask: str = ASK) -> dict[str, Any]:
    """Legacy completions."""
    return {"model": "davinci-002", "prompt": ask, "user": noise(size)}


TOOLS: dict[str, tuple[str, Callable[..., dict[str, Any]]]] = {
    "Claude Code": ("/v1/messages?beta=true", claude_code),
    "Codex": ("/backend-api/codex/responses", codex),
    "aider": ("/v1/chat/completions", aider),
    "Cline": ("/v1/chat/completions", cline),
    "Cline before": ("/v1/chat/completions", old_cline),
    "Roo": ("/v1/chat/completions", roo),
    "Continue": ("/v1/chat/completions", continue_dev),
    "Open WebUI": ("/api/v1/chat/completions", open_webui),
    "LangChain": ("/v1/chat/completions", langchain),
    "plain SDK": ("/v1/chat/completions", plain_sdk),
    "Responses with a string": ("/v1/responses", responses_text),
    "completions": ("/v1/completions", completions_text),
}
"""Tool to its path and builder."""
