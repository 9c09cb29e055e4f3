"""What follows from an engine's death: try again, smaller, later, or not at all. No I/O.

Out of memory is tried once more with less. A death by signal, or of an engine that had served, is
tried again at once; deaths in a row back off exponentially, and none is tried in a loop.
"""

from __future__ import annotations

import time

from turnout_sidecar.backend import Backend
from turnout_sidecar.diagnosis import MEMORY_KINDS, Cause
from turnout_sidecar.lifecycle import Ended
from turnout_sidecar.refusing import Refused
from turnout_sidecar.shrinking import changes, shrunk
from turnout_sidecar.states import State

FIRST_REST_S = 10.0
LONGEST_REST_S = 300.0
QUICK_RESTS_S = (0.0, 1.0, 4.0)
"""Pauses after the first, second and third death in a row of an engine that had been ready."""


def judge(backend: Backend, cause: Cause, ended: Ended, *, died: float, was_starting: bool) -> None:
    """Set the state, the back-off and the words that follow from one death."""
    backend.crashes += 1
    has_served = backend.first_served is not None and died - backend.first_served > 0.5
    backend.crash_streak = 1 if has_served and not was_starting else backend.crash_streak + 1
    if cause.kind in MEMORY_KINDS and not backend.has_shrunk:
        smaller = shrunk(backend.current, cause.retry_settings)
        if smaller is not None:
            backend.has_shrunk = True
            what = changes(backend.current.model, smaller.model)
            backend.current, backend.need_bytes, backend.learned_bytes = smaller, None, 0
            backend.state, backend.message = State.STOPPED, f"{cause.message}; retried with {what}"
            backend.remedy = cause.remedy
            return
    was_killed = ended.reason == "exit" and ended.code is not None and ended.code < 0
    may_retry = cause.kind not in MEMORY_KINDS and (not was_starting or was_killed)
    if may_retry and backend.crash_streak <= len(QUICK_RESTS_S):
        backend.state = State.STOPPED
        backend.message, backend.remedy = cause.message, cause.remedy
        backend.not_before = time.monotonic() + QUICK_RESTS_S[backend.crash_streak - 1]
        return
    fail(backend, cause)


def fail(backend: Backend, cause: Cause) -> None:
    """Not again before a back-off that doubles with every failure in a row."""
    exponent = min(max(0, backend.crash_streak - 1), 10)
    rest_s = min(FIRST_REST_S * 2**exponent, LONGEST_REST_S)
    backend.crash_streak += cause.kind == "cannot_launch"
    backend.state, backend.not_before = State.FAILED, time.monotonic() + rest_s
    backend.message, backend.remedy = cause.message, cause.remedy


def refusal(backend: Backend) -> Refused:
    """What requests at a failed backend are answered."""
    left_s = max(1.0, backend.not_before - time.monotonic())
    text = f"{backend.name} failed: {backend.message}"
    if backend.remedy:
        text += f"; {backend.remedy}"
    return Refused(503, "engine_failed", text, left_s)
