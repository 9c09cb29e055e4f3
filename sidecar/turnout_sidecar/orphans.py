"""Engines that outlived a sidecar: records of what was started, and the reaping of what is left.

A process is only killed when its environment carries the very token that a record of ours names,
on the same boot. Anything else that looks like an engine is reported elsewhere, never touched.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec
import psutil

from turnout_sidecar.process import kill_marked, marked, marker_of

log = logging.getLogger(__name__)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One engine that this or an earlier sidecar started."""

    backend: str
    marker: str
    pid: int
    started_at: float
    boot_id: str
    owner_pid: int
    owner_started_at: float


class Records:
    """A folder of one small file per running engine."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made when the first record is written."""
        self._folder = folder

    def write(self, backend: str, marker: str, pid: int) -> None:
        """Note a start; a full disk costs the note, not the engine."""
        record = Record(
            backend=backend,
            marker=marker,
            pid=pid,
            started_at=_started_at(pid),
            boot_id=boot_id(),
            owner_pid=os.getpid(),
            owner_started_at=_started_at(os.getpid()),
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path(marker).write_bytes(msgspec.json.encode(record))
        except OSError as error:
            log.warning("no process record for %s: %s", backend, error)

    def forget(self, marker: str) -> None:
        """The engine and its children are gone."""
        with contextlib.suppress(OSError):
            self._path(marker).unlink(missing_ok=True)

    def reap(self) -> list[str]:
        """Kill what dead sidecars left behind; the backends' names. Blocking."""
        reaped = []
        for path in sorted(self._folder.glob("*.json")):
            record = _read(path)
            if record is None or record.boot_id != boot_id():
                path.unlink(missing_ok=True)
                continue
            if _is_alive(record.owner_pid, record.owner_started_at):
                continue  # another sidecar's, or our own
            if kill_marked(record.marker):
                reaped.append(record.backend)
                log.warning("killed %s, left behind by a sidecar that died", record.backend)
            path.unlink(missing_ok=True)
        return reaped

    def left_behind(self) -> list[Record]:
        """Engines that live although their sidecar is dead: what `reap` would kill. Blocking."""
        records = (_read(path) for path in sorted(self._folder.glob("*.json")))
        dead = {
            record.marker: record
            for record in records
            if record is not None
            and record.boot_id == boot_id()
            and not _is_alive(record.owner_pid, record.owner_started_at)
        }
        alive = {marker_of(process) for process in marked(dead.__contains__)} if dead else set()
        return [record for marker, record in dead.items() if marker in alive]

    def _path(self, marker: str) -> Path:
        return self._folder / f"{marker.rpartition('#')[2]}.json"


def boot_id() -> str:
    """Tells one boot of this machine from the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{psutil.boot_time():.0f}"


def is_ours(pid: int) -> bool:
    """Whether `pid` was started by a sidecar of this user (it carries an engine marker)."""
    try:
        return bool(marker_of(psutil.Process(pid)))
    except psutil.Error:
        return False


def _read(path: Path) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None


def _started_at(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def _is_alive(pid: int, started_at: float) -> bool:
    """The same process, not another that got its number."""
    return started_at > 0 and abs(_started_at(pid) - started_at) < 1.0
