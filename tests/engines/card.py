"""A graphics card's memory as files: who holds how much of it. Standard library only.

`<folder>/total` is the card's size; `<folder>/<pid>` what a process holds. Memory of a process that
has gone is free again, as a driver would have it.
"""

from __future__ import annotations

import os
from pathlib import Path


def total(folder: Path) -> int:
    return int((folder / "total").read_text())


def holders(folder: Path) -> dict[int, int]:
    """Bytes by living process."""
    held = {}
    for file in folder.iterdir():
        if file.name.isdigit() and Path(f"/proc/{file.name}/status").exists():
            state = Path(f"/proc/{file.name}/status").read_text()
            if "State:\tZ" not in state:
                held[int(file.name)] = int(file.read_text() or 0)
    return held


def take(folder: Path, size: int) -> None:
    """Hold `size` bytes from now on; raises MemoryError where the card has less."""
    others = sum(size for pid, size in holders(folder).items() if pid != os.getpid())
    if others + size > total(folder):
        raise MemoryError
    fresh = folder / f"{os.getpid()}.new"
    fresh.write_text(str(size))
    fresh.replace(folder / str(os.getpid()))
