"""What the planner and the machine probe say, in the terms the supervisor uses.

The only module of this room that knows their values; all of it blocks and runs in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from turnout_rules.model import Target
from turnout_sidecar.engines.base import CannotLaunch, model_file
from turnout_sidecar.engines.environment import with_own_variables
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.memory import Host
from turnout_sidecar.placement import lacking_cards, room_for
from turnout_sidecar.planner import (
    ModelFiles,
    Plan,
    Room,
    UnreadableModelError,
    make_plan,
    read_model,
    wish_for,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a backend will hold, and where."""

    total_bytes: int = 0
    device: str = "cpu"
    obstacle: str = ""
    """Why it could not run even with the device to itself."""
    advise: Callable[[int], str] = lambda free_bytes: ""
    """The setting that would make it fit into so many free bytes; empty: none would."""


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
    with contextlib.suppress(CannotLaunch):  # its start will say what is not set
        target = with_own_variables(target, os.environ)
    seen = machine.look()
    room = room_for(target, seen, os.environ)
    try:
        files = _model_files(target)
    except UnreadableModelError as error:
        log.info("%s: no plan: %s", target.name, error)
        files = ModelFiles(weight_bytes=_file_bytes(target), shape=None, source="file size")
    wish = wish_for(target)

    def planned(free_bytes: int) -> Plan:
        return make_plan(wish, files, msgspec.structs.replace(room, free_bytes=free_bytes))

    alone = planned(room.total_bytes)
    if alone.warning:
        log.warning("%s: %s", target.name, alone.warning)
    is_too_large = alone.total_bytes > room.total_bytes
    lacking = lacking_cards(target, seen, os.environ)
    return Need(
        total_bytes=alone.total_bytes,
        device=room.device,
        obstacle=lacking or ("" if is_too_large else alone.problem),
        advise=lambda free_bytes: planned(free_bytes).advice,
    )


def plan_of(target: Target, room: Room) -> Plan:
    """The plan of `target` in `room`; raises UnreadableModelError."""
    return make_plan(wish_for(target), _model_files(target), room)


def _model_files(target: Target) -> ModelFiles:
    if target.upstream.engine == "command" and not target.model.model_path:
        raise UnreadableModelError("a command's own business")
    return read_model(model_file(target.model))


def _file_bytes(target: Target) -> int:
    """The size of `model_path`; 0 for what is no file or folder here."""
    path = Path(model_file(target.model)) if target.model.model_path else None
    if path is None or not path.exists():
        return 0
    files = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
    return sum(file.stat().st_size for file in files)
