"""The real sidecar as a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy_kit import plane

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
    with plane(folder, "sidecar", command, ready, environ, STOP_TIMEOUT_S) as process:
        yield SidecarProcess(process, int(json.loads(ready.read_text())["port"]), folder)
