"""The opt-in decision log: one JSON line a decision, written by a thread of its own.

It holds the texts people wrote, so it exists only if the settings name a file, is readable by its
owner only, and is bounded: at `max_bytes` the file is moved to `.1`. Proxy and sidecar append to
the same file. A request never waits for it; when the writer falls behind, lines are dropped and
counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import queue
import threading
import time
from pathlib import Path
from typing import Literal

from turnout_rules.decision import Decision
from turnout_rules.folders import data_folder
from turnout_rules.settings import Sidecar

log = logging.getLogger(__name__)
MAX_BYTES = 32 * 1024 * 1024
MAX_PENDING = 2_000
MAX_TEXT_CHARS = 4_000
"""Enough to tell what a text is about, and a bound on what waits to be written."""

Source = Literal["proxy", "gateway", "route_api"]
_Row = tuple[float, str, Decision, str, Source]


def decision_log_path(sidecar: Sidecar) -> Path | None:
    """The file that `sidecar.decision_log` names, below the data folder unless absolute."""
    if not sidecar.decision_log:
        return None
    base = Path(sidecar.data_dir).expanduser() if sidecar.data_dir else data_folder()
    return base / Path(sidecar.decision_log).expanduser()


class DecisionLog:
    """Writes to `path` until closed; None: nothing is kept until `write_to` names a file."""

    def __init__(self, path: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        """The writer starts with the first line."""
        self._path = path
        self._max_bytes = max_bytes
        self._pending: queue.Queue[_Row | None] = queue.Queue(MAX_PENDING)
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def write_to(self, path: Path | None) -> None:
        """Use `path` from now on, also for lines that still wait; None: keep nothing."""
        self._path = path

    def record(self, text: str, decision: Decision, *, version: str, source: Source) -> None:
        """Queue one line; never blocks."""
        if self._path is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
            self._thread.start()
        try:
            self._pending.put_nowait(
                (time.time(), text[:MAX_TEXT_CHARS], decision, version, source)
            )
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is queued, then stop; waits four seconds at most."""
        if self._thread is None:
            return
        with contextlib.suppress(queue.Full):
            self._pending.put(None, timeout=2.0)
        self._thread.join(timeout=2.0)

    def _write(self) -> None:
        is_complaining = False
        while (row := self._pending.get()) is not None:
            path = self._path
            if path is None:
                continue
            try:
                self._append(path, _line(row))
                is_complaining = False
            except (OSError, ValueError) as error:
                self.dropped += 1
                if not is_complaining:
                    log.warning("decision log %s cannot be written: %s", path, error)
                is_complaining = True

    def _append(self, path: Path, line: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _is_at(path, descriptor):
                    continue  # The other process moved it aside between our open and our lock.
                file.write(line)
                if os.fstat(descriptor).st_size >= self._max_bytes:
                    path.replace(path.with_name(path.name + ".1"))
                return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _line(row: _Row) -> bytes:
    seconds, text, decision, version, source = row
    shown = {
        "time": round(seconds, 3),
        "text": text,
        "route": decision.route,
        "target": decision.target,
        "layer": decision.layer,
        "reason": decision.reason,
        "task": decision.task,
        "elapsed_us": round(decision.elapsed_us, 1),
        "verdict": _verdict(decision),
        "version": version,
        "source": source,
    }
    return json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _verdict(decision: Decision) -> dict[str, object] | None:
    verdict = decision.verdict
    if verdict is None:
        return None
    return {
        "route": verdict.route,
        "probability": round(verdict.probability, 4),
        "runner_up": verdict.runner_up,
        "runner_up_probability": round(verdict.runner_up_probability, 4),
        "out_of_scope": round(verdict.out_of_scope, 4),
    }
