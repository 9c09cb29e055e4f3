"""What the planner, the machine probe and the diagnosis say, in the terms the supervisor uses.

The only module of this room that knows their values; all of it blocks and runs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnout_rules.model import Target
from turnout_sidecar.engines.base import model_file
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.memory import Host

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a backend will hold, and where."""

    total_bytes: int = 0
    device: str = "cpu"
    advice: str = ""
    """Which setting makes it smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an engine died."""

    kind: str
    message: str
    remedy: str = ""
    retry_settings: Mapping[str, Any] = field(default_factory=dict)


def look(machine: MachineProbe) -> Host:
    """One look at the machine through the probe."""
    seen = machine.look()
    return Host(
        ram_total=seen.ram_total_bytes,
        ram_available=seen.ram_available_bytes,
        swap_in_mb_s=seen.swap_in_mb_s,
        gpu_total={gpu.device: gpu.total_bytes for gpu in seen.gpus},
        gpu_free={gpu.device: gpu.free_bytes for gpu in seen.gpus},
    )


def need_of(target: Target, machine: MachineProbe) -> Need:
    """What `target` needs: planned from the model's own files, or at least their size."""
    return Need(total_bytes=_file_bytes(target))


def cause_of(reason: str, code: int | None, lines: Sequence[str]) -> Cause:
    """The diagnosis of an unasked end."""
    text = "\n".join(lines).lower()
    if "out of memory" in text:
        return Cause(kind="out_of_memory", message="out of memory")
    return Cause(kind=reason, message=f"the engine ended ({reason}, exit code {code})")


def _file_bytes(target: Target) -> int:
    """The size of `model_path`; 0 for what is no file or folder here."""
    path = Path(model_file(target.model)) if target.model.model_path else None
    if path is None or not path.exists():
        return 0
    files = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
    return sum(file.stat().st_size for file in files)
