"""Notices that a rules folder has changed, and loads it aside once it is quiet.

Polls `stat` instead of asking the kernel: editors that rename, container mounts that swap a symlink
and network folders all defeat notifications. Never changes the rules in force: it returns new ones,
or why there are none, and whoever asked decides.
"""

from __future__ import annotations

from pathlib import Path

from turnout_rules.loading import Rules, load_rules, rule_files
from turnout_rules.probes import problem_of, run_probes
from turnout_rules.problems import Problem, RulesError

type _Snapshot = tuple[tuple[str, int, int, int, int], ...]
_SCRIPT_FOLDER_DEPTH = 3


class RulesWatch:
    """One watched folder. `poll` is called every quarter second or so, from one thread."""

    def __init__(self, folder: Path, *, quiet_s: float = 0.2, version: str = "") -> None:
        """Watch `folder` from now on.

        With the `version` of the rules already loaded, a change between that load and now is
        found too, and a save that changes no byte is not reported.
        """
        self._folder = folder
        self._quiet_s = quiet_s
        self._version = version
        self._reported: _Snapshot | None = None if version else self._snapshot()
        """The state that was last loaded, or failed to; None: not known."""
        self._pending: _Snapshot | None = None
        """A newer state, waiting to be quiet since `_pending_since`."""
        self._pending_since = 0.0

    def poll(self, now: float) -> Rules | RulesError | None:
        """New rules, or why a change cannot be used (once per change), or None: nothing to do."""
        seen = self._snapshot()
        if seen == self._reported:
            self._pending = None
            return None
        if seen != self._pending:
            self._pending, self._pending_since = seen, now
            return None
        if now - self._pending_since < self._quiet_s:
            return None
        found = self._load()
        if self._snapshot() != seen:
            # Saved again while it was read: what was read may be half of it.
            self._pending = None
            return None
        self._reported, self._pending = seen, None
        if isinstance(found, RulesError):
            self._version = ""
            return found
        is_same = found.version == self._version
        self._version = found.version
        return None if is_same else found

    def _load(self) -> Rules | RulesError:
        try:
            rules = load_rules(self._folder)
        except RulesError as error:
            return error
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}"
            return RulesError([Problem(str(self._folder), 0, 0, "error", "unreadable", message)])
        outcomes = run_probes(rules.table, rules.settings.reading, rules.probes)
        failed = [problem_of(outcome) for outcome in outcomes if not outcome.is_met]
        return RulesError(failed) if failed else rules

    def _snapshot(self) -> _Snapshot:
        """What tells a changed file: name, file behind it, size, times. Follows symlinks."""
        paths = rule_files(self._folder)
        for depth in range(1, _SCRIPT_FOLDER_DEPTH):
            paths += sorted(self._folder.glob("/".join("*" * depth) + ".py"))
        states = []
        for path in paths:
            try:
                stat = path.stat()
            except OSError:
                states.append((str(path), 0, 0, 0, 0))
                continue
            changed = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            states.append((str(path), stat.st_ino, *changed))
        return tuple(states)
