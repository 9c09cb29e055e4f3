"""A running `turnout up` with folders of the test's own, and questions through its proxy."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from proxy_kit import wait_until


@dataclass
class Up:
    """A running `turnout up`."""

    process: subprocess.Popen[bytes]
    folder: Path
    environ: dict[str, str]

    @property
    def record(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "run" / "turnout.json").read_bytes())
        return content

    @property
    def log(self) -> str:
        return (self.folder / "up.log").read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def plane(self, module: str) -> psutil.Process:
        return next(p for p in self.children() if module in p.cmdline())

    def leftovers(self) -> list[str]:
        """Temporary folders of this instance."""
        return [p.name for p in (self.folder / "tmp").iterdir()]


@contextlib.contextmanager
def up(
    folder: Path,
    rules: Path,
    *arguments: str,
    waits: bool = True,
    is_lean: bool = True,
    takes_free_ports: bool = True,
    **variables: str,
) -> Iterator[Up]:
    """`turnout up`, with folders of the test's own; and these `variables`."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    own = {f"TURNOUT_{n.upper()}_DIR": str(folder / n) for n in ("cache", "data")}
    own |= {"TURNOUT_RUNTIME_DIR": str(folder / "run"), "TMPDIR": str(folder / "tmp")}
    environ = os.environ | own | variables
    command = [sys.executable, "-m", "turnout_cli", "up", "--rules", str(rules)]
    command += ["--lean"] * is_lean + ["--free-ports"] * takes_free_ports + [*arguments]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    running = Up(process, folder, environ)
    try:
        if waits:
            is_ready = lambda: "Turnout is up" in running.log or process.poll() is not None  # noqa: E731
            wait_until(is_ready, 60, "up")
            assert process.poll() is None, running.log
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)


def ask(running: Up, text: str = "hello") -> httpx2.Response:
    """A request through the proxy."""
    proxy = f"http://127.0.0.1:{running.record['proxy_port']}"
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    with httpx2.Client(proxy=proxy, trust_env=False, timeout=20) as client:
        return client.post("http://llm.example/v1/chat/completions", json=body)


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
