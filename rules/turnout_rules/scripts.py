"""A route's script: `choose(request) -> target | None`, run in-line, timed, never fatal.

A script is the rule author's own code and is trusted as such; what it must not be able to do by
mistake is to stall the proxy. It runs inside the event loop's thread, where neither signals nor a
second thread can stop it safely, so its own code objects (and no others) are watched through
`sys.monitoring`: each backward jump, call and resumption compares the clock with a deadline and
raises inside the script once that has passed. Code outside scripts runs at full speed; a watched
loop pays some 0.4 µs a turn, and a call of a script costs 2 to 3 µs in all. A single blocking call
into C (`time.sleep`, a huge `sum`) cannot be cut short by anything in this thread: it is measured,
reported, and after a few of them the script is switched off until its file changes.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import CodeType, FunctionType
from typing import Any

from turnout_rules.contents import read_limited
from turnout_rules.model import Place
from turnout_rules.problems import Problem
from turnout_rules.script_view import Request, RequestView

DEFAULT_BUDGET_MS = 2.0
INTERRUPT_AFTER_BUDGETS = 5
LEAST_INTERRUPT_MS = 10.0
LOAD_LIMIT_S = 2.0
OVERRUNS_UNTIL_DISABLED = 5.0
_FORGIVEN_A_CALL = 0.05
"""Each call within its budget takes so much of an overrun back: rare ones never add up."""

_TARGET = re.compile(r"pass|block|[^/\s,]{1,64}/[^\s,]{1,256}")
_log = logging.getLogger("turnout.scripts")


class Interrupted(BaseException):
    """Raised inside a script that ran past its deadline; no `except Exception` holds it."""


class Script:
    """One loaded script and how it has behaved. Made by `load_script`."""

    def __init__(self, name: str, choose: FunctionType, budget_ms: float) -> None:
        """Keep `choose`; its time limit is `budget_ms`, its end `INTERRUPT_AFTER_BUDGETS` of it."""
        self.name = name
        self.budget_ms = budget_ms
        self.calls = 0
        self.errors = 0
        self.overruns = 0
        self.last_error = ""
        self.last_ms = 0.0
        self.is_disabled = False
        self._choose = choose
        self._file = choose.__code__.co_filename
        self._limit_s = max(budget_ms * INTERRUPT_AFTER_BUDGETS, LEAST_INTERRUPT_MS) / 1_000
        self._score = 0.0
        self._logged: set[str] = set()

    def choose(self, request: Request) -> str | None:
        """The target the script names; None if it names none, fails, or is switched off."""
        if self.is_disabled:
            return None
        self.calls += 1
        answer: object = None
        failure: BaseException | None = None
        started = perf_counter()
        try:
            answer = _guarded(lambda: self._choose(RequestView(request)), self._limit_s)
        except BaseException as error:  # a script may raise anything; none of it is the proxy's end
            failure = error
        self.last_ms = (perf_counter() - started) * 1_000
        self._account(was_interrupted=isinstance(failure, Interrupted))
        if failure is None:
            return self._checked(answer)
        if not isinstance(failure, Interrupted):
            self._failed(type(failure).__name__, _where(failure, self._file))
        return None

    def _account(self, *, was_interrupted: bool) -> None:
        if self.last_ms <= self.budget_ms and not was_interrupted:
            self._score = max(0.0, self._score - _FORGIVEN_A_CALL)
            return
        self.overruns += 1
        self._score += 2.0 if was_interrupted else 1.0
        how = "was interrupted after" if was_interrupted else "took"
        self._report(how, f"{how} {self.last_ms:.1f} ms, its budget is {self.budget_ms:g} ms")
        if self._score >= OVERRUNS_UNTIL_DISABLED:
            self.is_disabled = True
            self._report(
                "off", f"switched off after {self.overruns} overruns, until its file changes"
            )

    def _checked(self, answer: object) -> str | None:
        if answer is None:
            return None
        if isinstance(answer, str) and _TARGET.fullmatch(answer.strip()):
            return answer.strip()
        self._failed("answer", f"returned {_shown(answer)}, which is no target")
        return None

    def _failed(self, kind: str, reason: str) -> None:
        self.errors += 1
        self._report(kind, reason)

    def _report(self, kind: str, reason: str) -> None:
        """Keep the reason; log each kind once, so that a bad script cannot flood a log."""
        self.last_error = reason
        if kind not in self._logged:
            self._logged.add(kind)
            _log.warning("script %s %s", self.name, reason)


def load_script(
    folder: Path,
    name: str,
    place: Place,
    problems: list[Problem],
    budget_ms: float = DEFAULT_BUDGET_MS,
) -> Script | None:
    """Load `folder/name`; None, with the reason in `problems`, if it cannot be used."""

    def failed(code: str, message: str, remedy: str, line: int = 0) -> None:
        at = (label, line, 1) if line else (place.file, place.line, place.column)
        problems.append(Problem(*at, "error", code, message, remedy))

    label = str(folder / name)
    try:
        source = read_limited(Path(label))
    except OSError as error:
        why = error.strerror or "unreadable"
        failed("missing-script", f"script `{name}`: {why}", "create it or fix the path")
        return None
    namespace: dict[str, Any] = {"__name__": f"turnout_script_{Path(name).stem}", "__file__": label}
    try:
        code = compile(source, label, "exec")
        _watch_code(code)
        _guarded(lambda: exec(code, namespace), LOAD_LIMIT_S)  # noqa: S102 - the author's own code
    except SyntaxError as error:
        failed("bad-script", f"script `{name}`: {error.msg}", "fix the Python", error.lineno or 1)
        return None
    except Interrupted:
        failed("bad-script", f"script `{name}` takes over {LOAD_LIMIT_S:g} s to load", "do less")
        return None
    except BaseException as error:  # as above
        message = f"script `{name}` fails to load: {type(error).__name__}: {error}"
        failed("bad-script", message, "fix the Python", _line_in(error, label))
        return None
    choose = namespace.get("choose")
    if not inspect.isfunction(choose) or inspect.iscoroutinefunction(choose):
        failed("bad-script", f"script `{name}` has no function `choose(request)`", "define one", 1)
        return None
    return Script(name, choose, budget_ms)


def _shown(answer: object) -> str:
    """The answer's repr, unless that is broken too (it is the script's code)."""
    if isinstance(answer, str | int | float | list | tuple | dict):
        try:
            return f"{answer!r:.80}"
        except Exception:
            return f"a broken {type(answer).__name__}"
    return f"a {type(answer).__name__}"


def _where(error: BaseException, file: str) -> str:
    """The error in one line, with the line of the script it came from."""
    line = _line_in(error, file)
    try:
        said = f"{error!s:.120}"
    except Exception:
        said = "cannot be shown"
    return f"{type(error).__name__}: {said} (line {line})"


def _line_in(error: BaseException, file: str) -> int:
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# The guard. `_deadlines` holds, by thread, when the script that runs there must be over; the
# monitoring callbacks read it. Several threads may run scripts (the event loop, a reload's probes).

_deadlines: dict[int, float] = {}
_monitoring = sys.monitoring
_get_ident = threading.get_ident
_EVENTS = (
    _monitoring.events.PY_START | _monitoring.events.PY_RESUME | _monitoring.events.JUMP
) | getattr(_monitoring.events, "BRANCH_LEFT", 0)
_tool: int | None = None
_tool_lock = threading.Lock()


def _guarded(call: Callable[[], object], limit_s: float) -> object:
    thread = _get_ident()
    _deadlines[thread] = perf_counter() + limit_s
    try:
        return call()
    finally:
        _deadlines.pop(thread, None)


def _check_deadline(_code: CodeType, _offset: int, _to: object = None) -> None:
    deadline = _deadlines.get(_get_ident())
    if deadline is not None and perf_counter() > deadline:
        raise Interrupted


def _watch_code(code: CodeType) -> None:
    """Have `_check_deadline` called from the loops and calls of `code` and all code inside it."""
    tool = _claim_tool()
    if tool is None:
        return
    pending = [code]
    while pending:
        part = pending.pop()
        _monitoring.set_local_events(tool, part, _EVENTS)
        pending += [const for const in part.co_consts if isinstance(const, CodeType)]


def _claim_tool() -> int | None:
    """A free monitoring id, claimed once; 0 to 2 are left to debuggers, coverage and profilers."""
    global _tool
    with _tool_lock:
        if _tool is not None:
            return _tool
        for number in (4, 3):
            if _monitoring.get_tool(number) is None:
                _monitoring.use_tool_id(number, "turnout-scripts")
                for event in range(32):
                    if _EVENTS & (1 << event):
                        _monitoring.register_callback(number, 1 << event, _check_deadline)
                _tool = number
                return number
    _log.warning("no monitoring slot is free: a looping script cannot be interrupted")
    return None
