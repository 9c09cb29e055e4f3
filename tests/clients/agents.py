"""The programs that run as they are: coding agents and their command lines, each asked once without
a screen, with every update, telemetry and login of its own switched off.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from clients.programs import Place, Program, no_arguments
from clients.stage import OPENAI_KEY, PROMPT


def claude(place: Place) -> list[str]:
    """`claude -p`, with pieces of messages as they come."""
    command = [str(place.node_bin / "claude"), "-p", PROMPT, "--allowedTools", "Read"]
    return [*command, "--output-format", "stream-json", "--include-partial-messages", "--verbose"]


def file_path_argument(place: Place) -> dict[str, Any]:
    """Of Claude Code's `Read` and what is modelled on it."""
    return {"file_path": str(place.notes)}


def aider(place: Place) -> list[str]:
    """`aider --message`: it edits by text, and offers no tools."""
    command = [
        str(place.installed / "aider/bin/aider"),
        "--message",
        PROMPT,
        "--model",
        "openai/gpt-4o",
    ]
    command += ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable"]
    command += ["--no-show-model-warnings", "--no-pretty", "--no-show-release-notes"]
    return [*command, "--read", "CONVENTIONS.md"]


def codex(model: str) -> Callable[[Place], list[str]]:
    """`codex exec`; an address of one's own is a provider in its configuration."""

    def command(place: Place) -> list[str]:
        own = "check_for_update_on_startup = false\n"
        if model == UNKNOWN_MODEL:
            own += 'web_search = "disabled"\n'
        if place.is_base_url:
            own += 'model_provider = "turnout"\n[model_providers.turnout]\nname = "Turnout"\n'
            own += f'base_url = "{place.base_url}/v1"\nwire_api = "responses"\n'
            own += 'env_key = "OPENAI_API_KEY"\n'
        own += "[analytics]\nenabled = false\n"
        place.write(place.home / ".codex" / "config.toml", own)
        command = [str(place.node_bin / "codex"), "exec", "--skip-git-repo-check"]
        return [*command, "--dangerously-bypass-approvals-and-sandbox", "-m", model, PROMPT]

    return command


UNKNOWN_MODEL = "my-model"


def codex_program(place: Place) -> dict[str, Any]:
    """Of Codex's `exec`, which runs JavaScript that calls its tools."""
    return {"input": f'text(await tools.exec_command({{cmd: "cat {place.notes}"}}))'}


def opencode(provider: str, model: str, package: str = "") -> Callable[[Place], list[str]]:
    """`opencode run` with one provider; its settings stand in `opencode.json`."""

    def command(place: Place) -> list[str]:
        options = {}
        if place.is_base_url:
            options["baseURL"] = f"{place.base_url}/v1"
        settings: dict[str, Any] = {"options": options}
        if package:
            options.setdefault("baseURL", "https://api.openai.com/v1")
            options["apiKey"] = "{env:OPENAI_API_KEY}"
            settings |= {"npm": package, "models": {model: {}}}
        off = {"autoupdate": False, "share": "disabled", "permission": "allow"}
        config = {"provider": {provider: settings}, "small_model": f"{provider}/{model}"}
        place.write(place.work / "opencode.json", config | off)
        chosen = f"{provider}/{model}"
        return [str(place.node_bin / "opencode"), "run", "-m", chosen, "--format", "json", PROMPT]

    return command


def qwen(kind: str, model: str) -> Callable[[Place], list[str]]:
    """`qwen`, one prompt."""

    def command(place: Place) -> list[str]:
        base = place.base_url if place.is_base_url else PROVIDER[kind]
        quiet = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
        quiet["general"] = {"enableAutoUpdate": False, "disableAutoUpdate": True}
        place.write(place.home / ".qwen" / "settings.json", quiet)
        arguments = ["--auth-type", kind, "-m", model, "-y", "-o", "stream-json"]
        if kind == "openai":
            arguments += ["--openai-base-url", f"{base}/v1"]
        return [str(place.node_bin / "qwen"), *arguments, "--include-partial-messages", PROMPT]

    return command


PROVIDER = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}


def gemini(place: Place) -> list[str]:
    """`gemini -p`, with pieces of messages as they come."""
    settings = {
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    place.write(place.home / ".gemini" / "settings.json", settings)
    arguments = ["-m", "gemini-2.5-flash", "-y", "--skip-trust", "-o", "stream-json"]
    return [str(place.node_bin / "gemini"), *arguments, "-p", PROMPT]


def continue_cli(place: Place) -> list[str]:
    """`cn -p` with a configuration file of one model."""
    base = place.base_url if place.is_base_url else PROVIDER["openai"]
    config = place.write(
        place.work / "config.yaml",
        "name: mine\nversion: 1.0.0\nschema: v1\nmodels:\n"
        f"  - {{name: gpt, provider: openai, model: gpt-4o, apiBase: '{base}/v1',\n"
        f"     apiKey: {OPENAI_KEY}, roles: [chat]}}\n",
    )
    arguments = ["--config", str(config), "--auto", "-p", PROMPT]
    return [str(place.node_bin / "cn"), *arguments]


def cline(place: Place) -> list[str]:
    """`cline` after the `cline auth` that every person of it does once."""
    base = place.base_url if place.is_base_url else PROVIDER["openai"]
    program = str(place.node_bin / "cline")
    sign_in = [
        program,
        "auth",
        "-p",
        "openai",
        "-k",
        OPENAI_KEY,
        "-m",
        "gpt-4o",
        "-b",
        f"{base}/v1",
    ]
    ask = [program, "--json", PROMPT]
    return ["/bin/sh", "-c", f"{shlex.join(sign_in)} && exec {shlex.join(ask)}"]


NO_TOOLS = "it edits by text and calls no tools"
CODEX_NOTE = (
    'with `web_search = "disabled"`: for such a model it offers OpenAI\'s own search, which binds'
)

OPENCODE_QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}

AGENTS: tuple[Program, ...] = (
    Program(
        "Claude Code",
        "npm:@anthropic-ai/claude-code",
        claude,
        speaks="messages",
        tool="Read",
        arguments=file_path_argument,
        instructions="CLAUDE.md",
        environ={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        },
    ),
    Program(
        "aider",
        "pip:aider/aider-chat",
        aider,
        tool="",
        arguments=no_arguments,
        instructions="CONVENTIONS.md",
        impossible={"tool loop": NO_TOOLS},
    ),
    Program(
        "Codex",
        "npm:@openai/codex",
        codex("gpt-5.6-luna"),
        speaks="responses",
        tool="functions__exec",
        arguments=codex_program,
        is_shown=False,
        instructions="AGENTS.md",
    ),
    Program(
        "Codex, a model that it does not know",
        "npm:@openai/codex",
        codex(UNKNOWN_MODEL),
        speaks="responses",
        tool="exec_command",
        arguments=lambda place: {"cmd": f"cat {place.notes}"},
        is_shown=False,
        instructions="AGENTS.md",
        note=CODEX_NOTE,
    ),
    Program(
        "opencode",
        "npm:opencode-ai",
        opencode("openai", "gpt-4o"),
        speaks="responses",
        tool="read",
        arguments=lambda place: {"filePath": str(place.notes)},
        is_shown=False,
        instructions="AGENTS.md",
        environ=OPENCODE_QUIET,
    ),
    Program(
        "opencode",
        "npm:opencode-ai",
        opencode("anthropic", "claude-sonnet-4-5"),
        speaks="messages",
        tool="read",
        arguments=lambda place: {"filePath": str(place.notes)},
        is_shown=False,
        instructions="AGENTS.md",
        environ=OPENCODE_QUIET,
    ),
    Program(
        "opencode",
        "npm:opencode-ai",
        opencode("own", "gpt-4o", "@ai-sdk/openai-compatible"),
        speaks="chat",
        tool="read",
        arguments=lambda place: {"filePath": str(place.notes)},
        is_shown=False,
        instructions="AGENTS.md",
        environ=OPENCODE_QUIET,
    ),
    Program(
        "qwen-code",
        "npm:@qwen-code/qwen-code",
        qwen("openai", "gpt-4o"),
        tool="read_file",
        arguments=file_path_argument,
        instructions="QWEN.md",
    ),
    Program(
        "Continue",
        "npm:@continuedev/cli",
        continue_cli,
        tool="Read",
        arguments=lambda place: {"filepath": str(place.notes)},
        is_shown=False,
        instructions="AGENTS.md",
        environ={"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_ALLOW_ANONYMOUS_TELEMETRY": "0"},
    ),
    Program(
        "Cline",
        "npm:cline",
        cline,
        tool="read_files",
        is_shown=False,
        instructions=".clinerules",
        environ={"DISABLE_TELEMETRY": "1", "CLINE_NO_AUTO_UPDATE": "1"},
    ),
    Program(
        "gemini-cli",
        "npm:@google/gemini-cli",
        gemini,
        speaks="Google's own",
        tool="read_file",
        arguments=file_path_argument,
        instructions="GEMINI.md",
        bound="it speaks Google's own format, which rules do not read; it passes unchanged",
        impossible={"base-url": "the base-URL listener serves the formats of OpenAI and Anthropic"},
    ),
)
