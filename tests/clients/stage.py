"""The stage on which a client is tried: a real `turnout up`, the client's own provider behind TLS
under its real name, the target that the person's words choose, and a decoy that words of the
client's own prompt would choose.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clients.provider import FIRST, RESULT, Script, StandIn, body_text
from clients.wire import Tap, WayOut, relays
from proxy_kit import Seen, Upstream, make_certificates, upstream, write_rules
from up_kit import Up, up

PROVIDERS = ("api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com")
OPENAI_KEY = "sk-proj-clientclientclientclient0000"
ANTHROPIC_KEY = "sk-ant-api03-clientclientclientclient0000"
TARGET_KEY = "sk-target-1111"
GOOGLE_KEY = "AIzaClientClientClientClient0000"
CLIENT_KEYS = (OPENAI_KEY, ANTHROPIC_KEY, GOOGLE_KEY)
KEYWORD = "pelican"
PROMPT = f"Please read me what the {KEYWORD} wrote down."
DECOY = "zebrafish"
"""Stands in system prompts, project instructions and the tool's result, never in the prompt."""
OWN_WORDS = "assistant, agent, code, coding, command*, environment, file*, helpful, tool*, " + DECOY
"""Words that fill the prompts of such programs; a rule of higher priority waits for them."""
MODEL = "target-model"
RUN_TIMEOUT_S = 120.0

RULES = f"""
routes:
  - {{name: own-words, match: [{OWN_WORDS}], priority: 20, target: decoy/decoy-model}}
  - {{name: person, match: [{KEYWORD}], priority: 10, target: far/{MODEL}}}
  - {{name: rest, match: [.*], priority: -100, target: pass}}
"""


@dataclass
class Outcome:
    """What one run of a client showed."""

    status: int
    output: str
    far: list[Seen]
    decoy: list[Seen]
    origin: list[Seen]
    gates: list[bool]
    called: list[str]
    refused: set[str] = field(default_factory=set)

    @property
    def main(self) -> list[Seen]:
        """The requests of the person's turn, at whichever provider: those with the words of it."""
        return [s for s in (*self.far, *self.decoy, *self.origin) if KEYWORD in body_text(s)]


@dataclass
class Stage:
    """What a run needs; `play` is the whole use of it."""

    up: Up
    far: Upstream
    decoy: Upstream
    origin: Upstream
    stand_in: StandIn
    taps: tuple[Tap, Tap]
    way_out: WayOut
    runtime: Path

    def play(
        self,
        command: Sequence[str],
        *,
        way: str,
        script: Script,
        is_shown: bool,
        work: Path,
        environ: dict[str, str],
    ) -> Outcome:
        """`turnout run [--base-url] -- command` in `work`, to its end."""
        for provider in (self.far, self.decoy, self.origin):
            provider.seen.clear()
        self.way_out.refused.clear()
        self.stand_in.script = script
        output = Output()
        self._watch(script, way, output, is_shown)
        turnout = [sys.executable, "-m", "turnout_cli", "run"]
        turnout += ["--base-url"] * (way == "base-url")
        process = subprocess.Popen(
            [*turnout, "--", *command],
            env=self._environment(way, work, environ),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = output.follow(process)
        return Outcome(
            status=status,
            output=output.text,
            far=list(self.far.seen),
            decoy=list(self.decoy.seen),
            origin=list(self.origin.seen),
            gates=list(script.gates),
            called=list(script.called),
            refused=set(self.way_out.refused),
        )

    def _watch(self, script: Script, way: str, output: Output, is_shown: bool) -> None:
        """Tell the stand-in how to know that the client holds the first piece."""
        tap = self.taps[way == "base-url"]
        marks: list[int] = []
        script.opened = lambda: marks.append(tap.received)
        if is_shown:
            script.has_first_piece = lambda: FIRST.split()[0] in output.text
        else:
            script.has_first_piece = lambda: tap.received - marks[0] > len(FIRST)

    def _environment(self, way: str, work: Path, own: dict[str, str]) -> dict[str, str]:
        environ = bare(os.environ) | own
        environ |= {k: v for k, v in self.up.environ.items() if k.startswith("TURNOUT_")}
        environ |= {"TURNOUT_RUNTIME_DIR": str(self.runtime), "PWD": str(work)}
        if way == "base-url":
            # Whatever else the client does stays here; it reaches loopback by the NO_PROXY we set.
            outside = f"http://127.0.0.1:{self.way_out.port}"
            environ |= dict.fromkeys(("HTTPS_PROXY", "https_proxy"), outside)
        return environ


class Output:
    """What a process prints, while it prints it."""

    def __init__(self) -> None:
        """Nothing printed yet."""
        self.text = ""

    def follow(self, process: subprocess.Popen[bytes]) -> int:
        """Read to the end; the exit status. The whole group is killed after `RUN_TIMEOUT_S`."""
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        try:
            status = process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.text += f"\n[killed after {RUN_TIMEOUT_S:g} s]"
            status = -1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(10)
        return status

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            while data := os.read(stream.fileno(), 65_536):
                self.text += data.decode("utf-8", "replace")


def bare(environ: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """Without proxies, certificates, keys and base URLs of the machine's owner."""
    pattern = re.compile(
        r".*(proxy|cert|_ca_|cainfo|java_tool|api_key|base_url|api_base|auth_token|token).*"
        r"|(claude|anthropic|openai|codex|gemini|qwen|otel|npm|node|python|virtual_env|pyenv).*",
        re.IGNORECASE,
    )
    return {name: value for name, value in environ.items() if not pattern.fullmatch(name)}


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Everything up, until the block ends."""
    ca, server = make_certificates(folder, PROVIDERS)
    stand_in = StandIn()
    with (
        upstream(stand_in.reply, server_file=server) as origin,
        upstream(stand_in.reply) as far,
        upstream(stand_in.reply) as decoy,
    ):
        way_out = WayOut(frozenset(PROVIDERS), origin.port)
        with relays(way_out):
            rules = write_rules(
                folder / "rules",
                routes=RULES,
                upstreams=_upstreams(far, decoy),
                turnout=_settings(way_out, ca),
            )
            with up(folder / "up", rules, TARGET_KEY=TARGET_KEY) as running:
                record = running.record
                taps = (Tap(record["proxy_port"]), Tap(record["base_url_port"]))
                with relays(*taps):
                    record |= {"proxy_port": taps[0].port, "base_url_port": taps[1].port}
                    runtime = folder / "tapped"
                    runtime.mkdir()
                    (runtime / "turnout.json").write_text(json.dumps(record))
                    yield Stage(running, far, decoy, origin, stand_in, taps, way_out, runtime)


def _upstreams(far: Upstream, decoy: Upstream) -> str:
    return f"""
upstreams:
  far: {{base_url: "{far.url}/v1", api_key_env: TARGET_KEY}}
  decoy: {{base_url: "{decoy.url}/v1", api_key_env: TARGET_KEY}}
"""


def _settings(way_out: WayOut, ca: Path) -> str:
    return f"""
classifier: {{kind: "off"}}
proxy:
  upstream_proxy: http://127.0.0.1:{way_out.port}
  upstream_ca: {ca}
"""


def furnish(work: Path) -> Path:
    """A project folder with the file that the tool reads; its path."""
    work.mkdir(parents=True)
    notes = work / "notes.txt"
    notes.write_text(f"The {DECOY} has a {RESULT}.\n")
    return notes
