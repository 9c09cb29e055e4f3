"""The clients that are tried: how each is started, told its key, and what it shows.

One row a client and API. `scripts/` holds the few lines that a person of the library would write;
the programs of `agents.py` run as they are.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clients.stage import ANTHROPIC_KEY, GOOGLE_KEY, OPENAI_KEY, PROMPT

SCRIPTS = Path(__file__).parent / "scripts"
WAYS = ("proxy", "base-url")


@dataclass(frozen=True)
class Place:
    """Where one run happens."""

    way: str
    installed: Path
    """The folder that `make test-clients` installs into."""
    work: Path
    home: Path
    notes: Path
    base_url: str
    """Of the base-URL listener, without `/v1`."""

    @property
    def is_base_url(self) -> bool:
        """Whether the client asks Turnout itself."""
        return self.way == "base-url"

    @property
    def node_bin(self) -> Path:
        """Where npm put the programs, and its Node."""
        return self.installed / "npm" / "node_modules" / ".bin"

    def write(self, path: Path, content: str | dict[str, Any]) -> Path:
        """A configuration file; a dict becomes JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path


def no_arguments(place: Place) -> dict[str, Any]:
    """For clients without tools."""
    return {}


def path_argument(place: Place) -> dict[str, Any]:
    """What the scripts' own tool takes."""
    return {"path": str(place.notes)}


@dataclass(frozen=True)
class Program:
    """One row of the matrix."""

    name: str
    package: str
    """`pip:venv/name`, `npm:name`, or `path:program`: where its version is read."""
    command: Callable[[Place], list[str]]
    speaks: str = "chat"
    tool: str = "read_notes"
    """The tool that reads the notes file; empty: it has none."""
    arguments: Callable[[Place], dict[str, Any]] = path_argument
    is_shown: bool = True
    """It prints the answer piece by piece; else the pieces are counted on the wire."""
    instructions: str = ""
    """The file of a project's own instructions that it sends along."""
    environ: dict[str, str] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)
    """Ways that it cannot go, or checks that do not apply to it, with the reason."""
    note: str = ""
    bound: str = ""
    """Why no rule can move it; then it is seen to work with its own provider all the same."""

    @property
    def id(self) -> str:
        """For test names."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.name}-{self.speaks}".lower())

    def version(self, installed: Path) -> str:
        """As the installed package says; raises `LookupError` if it is not there."""
        kind, _, name = self.package.partition(":")
        if kind == "pip":
            venv, _, project = name.partition("/")
            return _pip_version(installed / venv, project)
        if kind == "npm":
            manifest = installed / "npm" / "node_modules" / name / "package.json"
            if not manifest.is_file():
                raise LookupError(f"{name} is not in {manifest.parent}")
            return str(json.loads(manifest.read_text())["version"])
        return _own_version(name)


def _pip_version(venv: Path, project: str) -> str:
    stem = project.replace("-", "_")
    for folder in venv.glob(f"lib/python*/site-packages/{stem}-*.dist-info"):
        return folder.name.removeprefix(f"{stem}-").removesuffix(".dist-info")
    raise LookupError(f"{project} is not in {venv}")


def _own_version(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise LookupError(f"{name} is not on this machine")
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else "?"


def script(name: str, *arguments: str) -> Callable[[Place], list[str]]:
    """A Python script under the interpreter of the libraries."""

    def command(place: Place) -> list[str]:
        return [str(place.installed / "libs/bin/python"), str(SCRIPTS / name), *arguments]

    return command


def module(name: str, *arguments: str) -> Callable[[Place], list[str]]:
    """A JavaScript module; it must lie beside the packages that it imports."""

    def command(place: Place) -> list[str]:
        (place.work / "node_modules").symlink_to(place.installed / "npm" / "node_modules")
        copy = shutil.copy(SCRIPTS / name, place.work)
        return ["node", str(copy), *arguments]

    return command


def llm(place: Place) -> list[str]:
    """The `llm` command; the tool is one of its Python functions."""
    functions = place.write(
        place.work / "tools.py",
        "def read_notes(path: str) -> str:\n"
        '    "Read the notes file."\n'
        "    return open(path).read()\n",
    )
    system = "You are a helpful assistant for files and code. Know the zebrafish."
    command = [str(place.installed / "libs/bin/llm"), "-m", "gpt-4o", "-s", system, "--no-log"]
    return [*command, "--functions", str(functions), PROMPT]


LIBRARIES = (
    Program("curl", "path:curl", script("raw_http.py", "curl")),
    Program("requests", "pip:libs/requests", script("raw_http.py", "requests")),
    Program("httpx", "pip:libs/httpx", script("raw_http.py", "httpx")),
    Program("openai-python", "pip:libs/openai", script("openai_chat.py")),
    Program("openai-python", "pip:libs/openai", script("openai_responses.py"), speaks="responses"),
    Program(
        "anthropic-python", "pip:libs/anthropic", script("anthropic_messages.py"), speaks="messages"
    ),
    Program("litellm", "pip:libs/litellm", script("litellm_chat.py", "openai/gpt-4o")),
    Program(
        "litellm",
        "pip:libs/litellm",
        script("litellm_chat.py", "anthropic/claude-sonnet-4-5"),
        speaks="messages",
    ),
    Program("langchain-openai", "pip:libs/langchain-openai", script("langchain_chat.py")),
    Program(
        "pydantic-ai",
        "pip:libs/pydantic-ai-slim",
        script("pydantic_ai_chat.py", "openai-chat:gpt-4o"),
    ),
    Program(
        "pydantic-ai",
        "pip:libs/pydantic-ai-slim",
        script("pydantic_ai_chat.py", "anthropic:claude-sonnet-4-5"),
        speaks="messages",
    ),
    Program(
        "openai-agents", "pip:libs/openai-agents", script("agents_responses.py"), speaks="responses"
    ),
    Program("llm", "pip:libs/llm", llm),
    Program("openai-node", "npm:openai", module("openai_node.mjs", "chat")),
    Program(
        "openai-node", "npm:openai", module("openai_node.mjs", "responses"), speaks="responses"
    ),
    Program(
        "anthropic-node", "npm:@anthropic-ai/sdk", module("anthropic_node.mjs"), speaks="messages"
    ),
)


def environment(program: Program, place: Place) -> dict[str, str]:
    """The variables of a person who uses `program` in `place`, telemetry off."""
    path = f"{place.node_bin}:/usr/local/bin:/usr/bin:/bin"
    keys = {"OPENAI_API_KEY": OPENAI_KEY, "ANTHROPIC_API_KEY": ANTHROPIC_KEY}
    keys["GEMINI_API_KEY"] = GOOGLE_KEY
    home = {"HOME": str(place.home), "PATH": path, "TMPDIR": str(place.home)}
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        home[f"XDG_{name}_HOME"] = str(place.home / name.lower())
    quiet = {"DO_NOT_TRACK": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_COLOR": "1"}
    quiet |= {"LITELLM_TELEMETRY": "False", "OTEL_SDK_DISABLED": "true", "TERM": "dumb"}
    return home | keys | quiet | {"CLIENT_PROMPT": PROMPT} | program.environ
