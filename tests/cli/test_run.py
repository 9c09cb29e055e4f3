"""`turnout run -- CMD`: real clients, with nothing set but what it sets, through a real proxy.

The clients ask `https://llm.example`, a host that exists nowhere: an answer proves that the proxy
was used and its certificate trusted. Clients that cannot post get the proxy's 502 for it, which
proves the same.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from proxy_kit import Upstream, upstream, wait_until, write_rules
from up_kit import Up, has_ended, up

ROUTES = "routes:\n  - {name: rest, match: [.*], target: far/model}\n"
SETTINGS = "classifier: {kind: 'off'}\nproxy: {intercept: [llm.example]}\n"
URL = "https://llm.example/v1/chat/completions"
BODY = '{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
CLIENT_KEY = "sk-client-0000"
ANSWER = "ok from model"


@dataclass
class Setup:
    """A running instance and the only upstream that its rules know."""

    up: Up
    far: Upstream
    rules: Path

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`turnout run -- command` in an environment without proxy or certificate variables."""
        return run(self.up.environ, "--", *command, cwd=cwd)


def run(
    environ: dict[str, str], *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "turnout_cli", "run", *arguments],
        env=bare(environ),
        capture_output=True,
        text=True,
        timeout=90,
        cwd=cwd,
        check=False,
    )


def bare(environ: dict[str, str]) -> dict[str, str]:
    """What the machine's owner has set for proxies and certificates would hide what we set."""
    pattern = re.compile(r".*(proxy|cert|_ca_|cainfo|java_tool_options).*", re.IGNORECASE)
    return {name: value for name, value in environ.items() if not pattern.match(name)}


def write_routes(folder: Path, far: Upstream) -> Path:
    upstreams = f'upstreams: {{far: {{base_url: "{far.url}/v1"}}}}\n'
    return write_rules(folder, routes=ROUTES, upstreams=upstreams, turnout=SETTINGS)


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    folder = tmp_path_factory.mktemp("run")
    with upstream() as far:
        rules = write_routes(folder / "rules", far)
        with up(folder / "up", rules) as running:
            yield Setup(running, far, rules)


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not on this machine")
    return found


def node() -> tuple[str, tuple[int, int]]:
    program = need("node")
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = (int(part) for part in text.strip().lstrip("v").split(".")[:2])
    return program, (major, minor)


def curl(setup: Setup) -> list[str]:
    sent = ("-H", "content-type: application/json", "-d", BODY)
    return [need("curl"), "-sS", *sent, "-H", f"authorization: Bearer {CLIENT_KEY}", URL]


PYTHON = {
    "httpx": (
        "import httpx2; c = httpx2.Client(timeout=30)\n"
        "print(c.post({url!r}, content={body!r}, headers={headers!r}).text)"
    ),
    "requests": (
        "from pip._vendor import requests\n"
        "print(requests.post({url!r}, data={body!r}, headers={headers!r}, timeout=30).text)"
    ),
    "aiohttp": (
        "import aiohttp, asyncio\n"
        "async def main():\n"
        "    async with aiohttp.ClientSession(trust_env=True) as s:\n"
        "        async with s.post({url!r}, data={body!r}, headers={headers!r}) as r:\n"
        "            print(await r.text())\n"
        "asyncio.run(main())"
    ),
    "urllib": (
        "import urllib.request as u\n"
        "r = u.Request({url!r}, data={body!r}.encode(), headers={headers!r})\n"
        "print(u.urlopen(r, timeout=30).read().decode())"
    ),
    "openai": (
        "import openai; c = openai.OpenAI(api_key={key!r}, base_url='https://llm.example/v1')\n"
        "m = [dict(role='user', content='hello')]\n"
        "print(c.chat.completions.create(model='m', messages=m).choices[0].message.content)"
    ),
}


def python(library: str, setup: Setup) -> list[str]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {CLIENT_KEY}"}
    code = PYTHON[library].format(url=URL, body=BODY, headers=headers, key=CLIENT_KEY)
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("client", ["curl", *PYTHON, "node", "deno", "java"])
def test_a_client_that_knows_nothing_of_turnout_is_routed(
    setup: Setup, tmp_path: Path, client: str
) -> None:
    setup.far.seen.clear()
    if client == "curl":
        command = curl(setup)
    elif client == "node":
        command = node_command()
    elif client == "deno":
        command = [need("deno"), "eval", FETCH]
    elif client == "java":
        command = java_command(tmp_path)
    else:
        command = python(client, setup)
    done = setup.run(*command)
    assert ANSWER in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    (seen,) = setup.far.seen
    assert seen.json["model"] == "model"
    assert CLIENT_KEY not in str(seen.fields)


FETCH = (
    f"fetch({URL!r}, {{method: 'POST', body: {BODY!r}, headers: {{'content-type': "
    f"'application/json', authorization: 'Bearer {CLIENT_KEY}'}}}})"
    ".then(r => r.text()).then(console.log)"
)


def node_command() -> list[str]:
    program, version = node()
    if not (version >= (24, 0) or (22, 21) <= version < (23, 0)):
        pytest.skip(f"Node {version[0]}.{version[1]} has no support for proxy variables")
    return [program, "-e", FETCH]


JAVA = """
import java.net.*;
public class Ask {
    public static void main(String[] a) throws Exception {
        HttpURLConnection c = (HttpURLConnection) new URL("%s").openConnection();
        c.setDoOutput(true);
        c.setRequestProperty("content-type", "application/json");
        c.setRequestProperty("authorization", "Bearer %s");
        c.getOutputStream().write(a[0].getBytes("UTF-8"));
        System.out.println(new String(c.getInputStream().readAllBytes(), "UTF-8"));
    }
}
"""


def java_command(tmp_path: Path) -> list[str]:
    program = need("java")
    need("javac")
    source = tmp_path / "Ask.java"
    source.write_text(JAVA % (URL, CLIENT_KEY))
    return [program, str(source), BODY]


def test_node_trusts_the_authority_even_where_it_knows_no_proxy(setup: Setup) -> None:
    """A tool that makes its own tunnel needs the certificate all the same."""
    program, _ = node()
    code = """
    const [host, port] = process.env.HTTPS_PROXY.slice(7).split(':');
    const connect = {host, port, method: 'CONNECT', path: 'llm.example:443'};
    require('http').request(connect).on('connect', (r, socket) => {
      const ask = {host: 'llm.example', path: '/v1/models', socket, agent: false};
      require('https').get(ask, r => console.log('status', r.statusCode))
        .on('error', e => console.log(e.code));
    }).end();
    """
    assert setup.run(program, "-e", code).stdout.strip() == "status 502"


def test_git_and_pip_reach_the_proxy_and_trust_it(setup: Setup, tmp_path: Path) -> None:
    git = setup.run(need("git"), "ls-remote", "https://llm.example/repo.git")
    assert "502" in git.stderr, git.stderr
    target = ("--dest", str(tmp_path), "--no-deps", "--retries", "0", "--isolated")
    index = ("--index-url", "https://llm.example/simple/", "-vv", "--no-cache-dir")
    pip = setup.run(sys.executable, "-m", "pip", "download", *target, *index, "no-such-name")
    assert "502" in pip.stdout + pip.stderr, pip.stdout + pip.stderr


def test_uv_reaches_the_proxy_and_trusts_it(setup: Setup, tmp_path: Path) -> None:
    index = ("--index-url", "https://llm.example/simple/", "--no-cache", "--no-config")
    where = ("--target", str(tmp_path), "--python", sys.executable)
    done = setup.run(need("uv"), "pip", "install", "--dry-run", *where, *index, "no-such-name")
    assert "502" in done.stderr, done.stderr


def test_cargo_reaches_the_proxy_and_trusts_it(setup: Setup, tmp_path: Path) -> None:
    cargo = need("cargo")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text("")
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\n'
        '[dependencies]\nb = {version = "1", registry = "far"}\n'
    )
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo" / "config.toml").write_text(
        '[registries.far]\nindex = "sparse+https://llm.example/index/"\n[net]\nretry = 0\n'
    )
    done = setup.run(cargo, "fetch", cwd=tmp_path)
    assert "502" in done.stderr, done.stderr


def test_with_base_url_a_tool_needs_no_certificate(setup: Setup) -> None:
    code = (
        "import os, openai; c = openai.OpenAI(api_key='sk-1')\n"
        "m = [dict(role='user', content='x')]\n"
        "print(c.chat.completions.create(model='m', messages=m).choices[0].message.content)\n"
        "assert not {'HTTPS_PROXY', 'SSL_CERT_FILE'} & os.environ.keys()"
    )
    done = run(setup.up.environ, "--base-url", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, ANSWER), done.stderr


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["no-such-program-here"], 127),
        (["/etc/hostname"], 126),
        (["sh", "-c", 'test "$1" = -- && test "$2" = -x', "sh", "--", "-x"], 0),
    ],
)
@pytest.mark.parametrize("has_instance", [True, False])
def test_the_commands_own_status_and_arguments(
    setup: Setup, tmp_path: Path, command: list[str], status: int, has_instance: bool
) -> None:
    environ, more = setup.up.environ, []
    if not has_instance:
        environ = own_environ(tmp_path)
        more = ["--rules", str(setup.rules)]
    done = run(environ, *more, "--", *command)
    assert done.returncode == status, done.stderr
    assert ("starting one" in done.stderr) is not has_instance


def own_environ(tmp_path: Path) -> dict[str, str]:
    own = {f"TURNOUT_{n.upper()}_DIR": str(tmp_path / n) for n in ("cache", "data")}
    (tmp_path / "tmp").mkdir(exist_ok=True)
    own |= {"TURNOUT_RUNTIME_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path / "tmp")}
    return os.environ | own


def test_without_an_instance_one_is_started_for_the_command_alone(
    setup: Setup, tmp_path: Path
) -> None:
    setup.far.seen.clear()
    environ = own_environ(tmp_path)
    done = run(environ, "--rules", str(setup.rules), "--", *curl(setup))
    assert ANSWER in done.stdout, done.stderr
    assert len(setup.far.seen) == 1
    assert list((tmp_path / "tmp").iterdir()) == []
    mine = str(tmp_path / "tmp")
    assert not [p.pid for p in psutil.process_iter(["cmdline"]) if mine in str(p.info["cmdline"])]


def test_broken_rules_are_told_before_anything_starts(tmp_path: Path) -> None:
    rules = write_rules(tmp_path / "rules", routes="routes: 3\n")
    done = run(own_environ(tmp_path), "--rules", str(rules), "--", "true")
    assert done.returncode == 1
    assert "routes.yaml:1" in done.stderr


def test_a_signal_reaches_the_command_and_everything_ends(setup: Setup, tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n"
        "print('up', flush=True)\nsignal.pause()"
    )
    command = [sys.executable, "-m", "turnout_cli", "run", "--rules", str(setup.rules), "--"]
    process = subprocess.Popen(
        [*command, sys.executable, "-c", code],
        env=bare(own_environ(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 9
        wait_until(lambda: all(has_ended(child) for child in children), 20, "planes end")
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


def test_a_proxy_that_wants_a_password_gets_it_from_its_variable(
    tmp_path: Path, setup: Setup
) -> None:
    rules = write_routes(tmp_path / "rules", setup.far)
    settings = SETTINGS.replace("proxy: {", "proxy: {listen_host: '0.0.0.0', auth: MY_LOGIN, ")
    write_rules(rules, turnout=settings)
    with up(tmp_path / "up", rules, MY_LOGIN="me:se@cret") as running:
        without = run(running.environ | {"MY_LOGIN": ""}, "--", "true")
        assert (without.returncode, "MY_LOGIN" in without.stderr) == (1, True)
        done = run(running.environ, "--", *curl(setup))
        assert ANSWER in done.stdout, done.stderr
        assert "se@cret" not in running.log
