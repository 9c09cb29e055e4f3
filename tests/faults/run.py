"""`python tests/faults/run.py [NAME …] [--write PAGE]`: load and faults against real processes.

Each scenario starts an instance of its own and ends in a sentence with figures, or fails. With
`--write` the figures go into the page, between its markers. Takes some ten minutes in all.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from faults import bodies, connections, world

SCENARIOS: dict[str, Callable[[Path], str]] = {
    one.__name__: one
    for one in (
        connections.slow_loris,
        connections.idle_connections,
        connections.streams,
        connections.few_descriptors,
        bodies.large_bodies,
        bodies.bombs,
        bodies.odd_providers,
        bodies.flood,
        world.kills,
        world.full_disk,
        world.wild_saves,
        world.yaml_bombs,
        world.hostile_scripts,
        world.hostile_batches,
        world.http2,
    )
}
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def main() -> int:
    """Run what is named, or all; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures into PAGE")
    arguments = parser.parse_args()
    rows, has_failed = [], False
    for name in arguments.names or SCENARIOS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="turnout-faults-") as folder:
            try:
                figures = SCENARIOS[name](Path(folder))
            except Exception:
                traceback.print_exc()
                figures, has_failed = "FAILED", True
        print(f"{name} ({time.monotonic() - began:.0f} s): {figures}", flush=True)
        what = (SCENARIOS[name].__doc__ or "").strip()
        rows.append(f"| `{name}` | {what} | {figures} |")
    if arguments.write and not has_failed:
        _write(arguments.write, rows)
    return int(has_failed)


def _write(page: Path, rows: list[str]) -> None:
    text = page.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    machine = (
        f"{os.cpu_count()} shared cores, Python {platform.python_version()}, {platform.system()}"
    )
    table = ["| scenario | what | seen |", "|---|---|---|", *rows]
    page.write_text(f"{head}{BEGIN}\nOn {machine}:\n\n" + "\n".join(table) + f"\n{END}{tail}")


if __name__ == "__main__":
    sys.exit(main())
