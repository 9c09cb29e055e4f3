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
import psutil

from turnout_rules.model import Target
from turnout_sidecar.backend import Backend
from turnout_sidecar.engines.base import CannotLaunch, model_file
from turnout_sidecar.engines.environment import with_own_variables
from turnout_sidecar.machine import MachineProbe
from turnout_sidecar.memory import Host
from turnout_sidecar.placement import lacking_cards, room_for
from turnout_sidecar.planner import (
    Measurements,
    ModelFiles,
    Plan,
    Room,
    UnreadableModelError,
    make_plan,
    measured_in,
    read_model,
    wish_for,
)

log = logging.getLogger(__name__)
MEASUREMENTS_FILE = "measured.json"
"""In the data folder."""
_STARTUP_LINES = 2_000


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


def need_of(target: Target, machine: MachineProbe, known: Measurements) -> Need:
    """What `target` needs: planned from the model's own files, or at least their size.

    `known` is what earlier starts of models were seen to hold.
    """
    with contextlib.suppress(CannotLaunch):  # its start will say what is not set
        target = with_own_variables(target, os.environ)
    seen = machine.look()
    room = room_for(target, seen, os.environ)
    try:
        files = _model_files(target, known)
    except UnreadableModelError as error:
        log.info("%s: no plan: %s", target.name, error)
        files = ModelFiles(weight_bytes=_file_bytes(target), shape=None, source="file size")
    wish = wish_for(target)

    def planned(free_bytes: int) -> Plan:
        return make_plan(wish, files, msgspec.structs.replace(room, free_bytes=free_bytes))

    alone = planned(room.total_bytes)
    if alone.warning:
        log.warning("%s: %s", target.name, alone.warning)
    # A guess may be far too high, and nobody would ever know: it gets what there is.
    total = min(alone.total_bytes, room.free_bytes) if alone.is_guess else alone.total_bytes
    is_too_large = total > room.total_bytes
    lacking = lacking_cards(target, seen, os.environ)
    return Need(
        total_bytes=total,
        device=room.device,
        obstacle=lacking or ("" if is_too_large else alone.problem),
        advise=lambda free_bytes: planned(free_bytes).advice,
    )


def plan_of(target: Target, room: Room, known: Measurements) -> Plan:
    """The plan of `target` in `room`; raises UnreadableModelError."""
    return make_plan(wish_for(target), _model_files(target, known), room)


def remember(backend: Backend, machine: MachineProbe, known: Measurements) -> None:
    """Keep what an engine that has just become ready holds, if its plan was a guess."""
    target, process = backend.current, backend.process
    try:
        files = _model_files(target)
        if not files.digest or process is None:
            return
        room = room_for(target, machine.look(), os.environ)
        held = backend.activity.rss_bytes
        if room.is_card:
            held = _held_on(backend.device, process.pid, machine)
        lines = backend.log.tail_of_life(_STARTUP_LINES)
        if seen := measured_in(lines, wish_for(target), files, room, held):
            known.keep(files.digest, seen)
    except (UnreadableModelError, OSError, psutil.Error) as error:
        log.info("%s: not measured: %s", target.name, error)


def _held_on(device: str, pid: int, machine: MachineProbe) -> int:
    """Bytes of the card that the process and its descendants hold; 0: the driver does not tell."""
    family = {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    processes = (p for gpu in machine.look().gpus if gpu.device == device for p in gpu.processes)
    return sum(process.used_bytes or 0 for process in processes if process.pid in family)


def _model_files(target: Target, known: Measurements | None = None) -> ModelFiles:
    if target.upstream.engine == "command" and not target.model.model_path:
        raise UnreadableModelError("a command's own business")
    files, wish = read_model(model_file(target.model)), wish_for(target)
    return msgspec.structs.replace(
        files,
        draft=read_model(wish.draft) if wish.draft else None,
        projector=read_model(wish.projector) if wish.projector else None,
        measured=known.of(files.digest) if known and files.digest else None,
    )


def _file_bytes(target: Target) -> int:
    """The size of `model_path`; 0 for what is no file or folder here."""
    path = Path(model_file(target.model)) if target.model.model_path else None
    if path is None or not path.exists():
        return 0
    files = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
    return sum(file.stat().st_size for file in files)
