"""The real Codex finishes a task of several tool calls on a target that knows functions only.

Codex is the program named by `TURNOUT_TEST_CODEX`, else `codex` on the PATH (npm's
`@openai/codex`); without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions_only import FunctionsOnly
from proxy_kit import Proxy, Upstream, make_certificates, proxy, say_ok, upstream, write_rules
from sidecar_process import SidecarProcess, sidecar_process

pytestmark = pytest.mark.timeout(180)
CODEX_TIMEOUT_S = 90

ROUTES = """
routes:
  - {name: steps, match: [steps], target: small/model}
  - {name: rest, match: [.*], target: pass}
"""


def javascript(command: str) -> str:
    """What Codex' `exec` runs."""
    return f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}}); text(r.output);"


SCRIPT = [
    ("exec", json.dumps({"input": javascript("echo 'one \"ü\" 🙂' > out.txt")})),
    ("sleep", json.dumps({"duration_ms": 1})),
    ("exec", json.dumps({"input": javascript("echo two >> out.txt; cat out.txt")})),
]
PLAIN_SCRIPT = [
    ("exec_command", json.dumps({"cmd": "echo one > out.txt"})),
    ("exec_command", json.dumps({"cmd": "echo two >> out.txt"})),
]


@pytest.fixture(scope="module")
def codex_program() -> str:
    found = os.environ.get("TURNOUT_TEST_CODEX") or shutil.which("codex")
    if not found:
        pytest.skip("no Codex: npm install -g @openai/codex, or TURNOUT_TEST_CODEX=/path/to/codex")
    return found


@pytest.fixture
def small() -> Iterator[tuple[FunctionsOnly, Upstream]]:
    model = FunctionsOnly()
    with upstream(model.reply) as server:
        yield model, server


def rules(folder: Path, small: Upstream, **more: str) -> Path:
    upstreams = f"""
upstreams:
  small:
    base_url: {small.url}/v1
    models: {{model: {{adjust: {{hosted_tools: drop}}}}}}
"""
    return write_rules(folder, routes=ROUTES, upstreams=upstreams, **more)


@pytest.fixture
def gateway(tmp_path: Path, small: Any) -> Iterator[SidecarProcess]:
    settings = "classifier: {kind: 'off'}\n"
    with sidecar_process(
        tmp_path / "s", rules(tmp_path / "rules", small[1], turnout=settings)
    ) as s:
        yield s


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[tuple[Upstream, Path]]:
    """The provider that Codex believes to speak to, behind TLS."""
    ca, server = make_certificates(tmp_path, ("localhost", "127.0.0.1"))
    with upstream(say_ok, server_file=server) as it:
        yield it, ca


@pytest.fixture
def between(tmp_path: Path, small: Any, origin: Any) -> Iterator[Proxy]:
    ca = origin[1]
    settings = f"""
proxy: {{intercept: [localhost], upstream_ca: {ca}}}
classifier: {{kind: "off"}}
sidecar: {{port: 1}}
"""
    with proxy(tmp_path / "p", rules(tmp_path / "rules", small[1], turnout=settings)) as it:
        yield it


def run_codex(
    program: str, folder: Path, base_url: str, *options: str, environ: dict[str, str] | None = None
) -> tuple[Path, str]:
    """`codex exec` in a home and a work folder of its own; (work folder, what it printed)."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(
        'model_provider = "here"\n[model_providers.here]\nname = "here"\n'
        f'base_url = "{base_url}"\nenv_key = "HERE_KEY"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
    )
    own = {"CODEX_HOME": str(home), "HERE_KEY": "sk-client"}
    command = [program, "exec", "--skip-git-repo-check"]
    command += ["--dangerously-bypass-approvals-and-sandbox", *options, "please do the steps"]
    done = subprocess.run(
        command,
        cwd=work,
        env=(environ or dict(os.environ)) | own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CODEX_TIMEOUT_S,
        check=False,
    )
    return work, done.stdout + done.stderr


def test_codex_finishes_a_task_through_the_gateway(
    codex_program: str, gateway: SidecarProcess, small: Any, tmp_path: Path
) -> None:
    model, server = small
    model.script, model.text = SCRIPT, "All three steps are done."
    work, said = run_codex(codex_program, tmp_path, gateway.url + "/v1")
    assert model.refusals == [], said
    assert (work / "out.txt").read_text() == 'one "ü" 🙂\ntwo\n', said
    assert len(server.seen) == 4
    assert "All three steps are done." in said


def test_codex_finishes_a_task_through_the_proxy(
    codex_program: str, between: Proxy, small: Any, origin: Any, tmp_path: Path
) -> None:
    model, server = small
    model.script, model.text, model.reasons = SCRIPT, "All three steps are done.", True
    environ = between.environment()
    environ["CODEX_CA_CERTIFICATE"] = str(between.bundle)
    work, said = run_codex(codex_program, tmp_path, f"{origin[0].url}/v1", environ=environ)
    assert model.refusals == [], said
    assert (work / "out.txt").read_text() == 'one "ü" 🙂\ntwo\n', said
    assert len(server.seen) == 4
    assert [seen.path for seen in origin[0].seen if seen.path.endswith("/responses")] == []
    assert all("sk-client" not in str(seen.fields) for seen in server.seen)


def test_codex_with_a_model_it_does_not_know(
    codex_program: str, gateway: SidecarProcess, small: Any, tmp_path: Path
) -> None:
    """It sends plain functions beside a namespace, in `tools`."""
    model, server = small
    model.script = PLAIN_SCRIPT
    work, said = run_codex(codex_program, tmp_path, gateway.url + "/v1", "-m", "some-model")
    assert model.refusals == [], said
    assert (work / "out.txt").read_text() == "one\ntwo\n", said
    assert any("__" in tool["name"] for tool in server.last.json["tools"])


MCP_SERVER = """
import json, sys
TOOL = {"name": "get_weather", "description": "Weather", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    answers = {
        "initialize": lambda: {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "weather", "version": "1"},
        },
        "tools/list": lambda: {"tools": [TOOL]},
        "tools/call": lambda: {"content": [{"type": "text", "text": "sunny"}]},
    }
    if "id" in asked:
        result = answers.get(asked["method"], dict)()
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+héllo\n*** End Patch"


def test_codex_finds_and_calls_an_mcp_tool_and_applies_a_patch(
    codex_program: str, gateway: SidecarProcess, small: Any, tmp_path: Path
) -> None:
    """It searches for tools itself, and `apply_patch` is a custom tool with a grammar."""
    model, server = small
    model.script = [
        ("tool_search", json.dumps({"query": "weather"})),
        ("mcp__weather__get_weather", json.dumps({"city": "Rome"})),
        ("apply_patch", json.dumps({"input": PATCH})),
    ]
    script = tmp_path / "weather.py"
    script.write_text(MCP_SERVER)
    server_words = f"{{command={json.dumps(sys.executable)}, args=[{json.dumps(str(script))}]}}"
    command = f"mcp_servers.weather={server_words}"
    work, said = run_codex(
        codex_program, tmp_path, gateway.url + "/v1", "-m", "gpt-5.5", "-c", command
    )
    assert model.refusals == [], said
    assert (work / "new.txt").read_text() == "héllo\n", said
    assert len(server.seen) == 4
    assert "sunny" in str(server.last.json["input"])
    patching = next(t for t in server.last.json["tools"] if t["name"] == "apply_patch")
    assert "*** Begin Patch" in patching["description"]
