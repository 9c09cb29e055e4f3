"""The opt-in decision log: one JSON line a decision, written by a thread of its own.

It holds the texts people wrote, so it exists only if the settings name a file, is readable by its
owner only, and is bounded: at `max_bytes` the file is moved to `.1`. It never makes a request wait;
when the writer falls behind, lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
import time
from pathlib import Path

from turnout_rules.decision import Decision

log = logging.getLogger(__name__)
MAX_BYTES = 32 * 1024 * 1024
MAX_PENDING = 2_000


class DecisionLog:
    """Writes to `path` until closed."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Start the writer; the file is opened with the first line."""
        self._path = path
        self._max_bytes = max_bytes
        self._pending: queue.Queue[bytes | None] = queue.Queue(MAX_PENDING)
        self.dropped = 0
        self._thread = threading.Thread(target=self._write, name="decision-log", daemon=True)
        self._thread.start()

    def record(self, text: str, decision: Decision, *, version: str, source: str) -> None:
        """Queue one line; never blocks."""
        row = {
            "time": round(time.time(), 3),
            "text": text,
            "route": decision.route,
            "target": decision.target,
            "layer": decision.layer,
            "reason": decision.reason,
            "elapsed_us": round(decision.elapsed_us, 1),
            "verdict": None if decision.verdict is None else _verdict(decision),
            "version": version,
            "source": source,
        }
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            self._pending.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Write what is queued, then stop."""
        with contextlib.suppress(queue.Full):
            self._pending.put(None, timeout=2.0)
        self._thread.join(timeout=2.0)

    def _write(self) -> None:
        is_complaining = False
        while (line := self._pending.get()) is not None:
            try:
                self._append(line)
                is_complaining = False
            except OSError as error:
                self.dropped += 1
                if not is_complaining:
                    log.warning("decision log %s cannot be written: %s", self._path, error)
                is_complaining = True

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)
            is_full = file.tell() >= self._max_bytes
        if is_full:
            self._path.replace(self._path.with_name(self._path.name + ".1"))


def _verdict(decision: Decision) -> dict[str, object]:
    verdict = decision.verdict
    if verdict is None:
        return {}
    return {
        "route": verdict.route,
        "probability": round(verdict.probability, 4),
        "runner_up": verdict.runner_up,
        "runner_up_probability": round(verdict.runner_up_probability, 4),
        "out_of_scope": round(verdict.out_of_scope, 4),
    }
