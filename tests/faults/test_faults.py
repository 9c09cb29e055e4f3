"""The quick ones of the fault scenarios; `make faults` runs all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import bodies, connections, world


@pytest.mark.parametrize(
    "scenario",
    [
        connections.slow_loris,
        bodies.bombs,
        bodies.odd_providers,
        world.yaml_bombs,
        world.hostile_scripts,
        world.hostile_batches,
        world.http2,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_it_withstands(scenario: Callable[[Path], str], tmp_path: Path) -> None:
    assert re.search(r"\d", scenario(tmp_path)), "a sentence with figures"
