"""Libraries report nothing: the encoder runs without a trace in the folders or on the network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnout_sidecar import model_store

PROGRAM = """
import socket, sys
from pathlib import Path
asked = []
sys.addaudithook(lambda event, args: asked.append(args) if event.startswith("socket.") else None)
from turnout_sidecar.classifiers.encoder import Encoder
Encoder(Path(sys.argv[1])).encode("translate this")
own = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
print("sockets", sorted(name for name in own if name.startswith("socket")), asked)
"""


@pytest.mark.local
@pytest.mark.skipif(sys.platform != "linux", reason="reads the process' own sockets from /proc")
def test_the_encoder_keeps_no_device_id_and_opens_no_connection(tmp_path: Path) -> None:
    path = model_store.path_of("sentence-encoder")
    assert path is not None, "run `turnout models pull` first"
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env={**environ, "HOME": str(home), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "sockets [] []\n"
    left = [p for folder in (home, temporary) for p in folder.rglob("*") if p.is_file()]
    assert left == []
