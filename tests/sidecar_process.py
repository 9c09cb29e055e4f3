"""The real sidecar as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy_kit import wait_until

READY_TIMEOUT_S = 40.0
STOP_TIMEOUT_S = 20.0


@dataclass
class SidecarProcess:
    """A running sidecar."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "sidecar.log").read_text(errors="replace")

    def kill(self) -> None:
        """End it as the kernel would."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def sidecar_process(
    folder: Path, rules: Path, environ: dict[str, str] | None = None
) -> Iterator[SidecarProcess]:
    """`python -m turnout_sidecar` until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "turnout_sidecar", "--rules", str(rules), "--port", "0"]
    command += ["--ready-file", str(ready)]
    own = {"TURNOUT_DATA_DIR": str(folder / "data"), "TURNOUT_RUNTIME_DIR": str(folder / "run")}
    with (folder / "sidecar.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=os.environ | own | (environ or {}), stdout=log, stderr=log
        )
    try:
        wait_until(
            lambda: ready.exists() or process.poll() is not None, READY_TIMEOUT_S, "sidecar ready"
        )
        assert ready.exists(), (folder / "sidecar.log").read_text()
        yield SidecarProcess(process, int(json.loads(ready.read_text())["port"]), folder)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
