"""The soak in short: half a minute of load, kills and rule edits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quiet


@pytest.mark.timeout(120)
def test_nothing_is_lost_and_nothing_leaks() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "soak.py"), "30"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    numbers = json.loads(done.stdout[: done.stdout.rindex("}") + 1])
    assert numbers["kills"] > 5
    assert numbers["rule edits"] > 5
