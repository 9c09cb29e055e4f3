"""`turnout demo`, on the real parts, as it is installed with `turnout[local]` and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnout_cli.commands.demo import REQUESTS
from turnout_sidecar import model_store

pytestmark = [pytest.mark.local, pytest.mark.timeout(240)]
DEVELOPMENT_ONLY = ("openai", "httpx2", "pytest", "hypothesis", "jsonschema")


def test_every_request_of_the_demo_goes_where_it_should(tmp_path: Path) -> None:
    if any(model_store.path_of(name) is None for name in ("smollm2", "sentence-encoder")):
        pytest.skip("models are not fetched")
    for name in DEVELOPMENT_ONLY:
        (tmp_path / f"{name}.py").write_text("raise ImportError('only for development')\n")
    environ = os.environ | {"PYTHONPATH": str(tmp_path), "TURNOUT_DATA_DIR": str(tmp_path / "d")}
    command = [sys.executable, "-m", "turnout_cli", "demo"]
    done = subprocess.run(command, env=environ, capture_output=True, timeout=200, check=False)
    shown = done.stdout.decode()
    assert done.returncode == 0, (shown, done.stderr.decode())
    rows = re.findall(r" (\w+) +local/smollm2 +(rule|semantic) ", shown)
    assert [route for route, _ in rows] == [expected for _, expected, _ in REQUESTS]
