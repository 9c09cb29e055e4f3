"""What is wrong with a rule file: problems with a place and a remedy, collected in one pass."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True, order=True):
    """One finding. `line` and `column` count from 1; 0 means the file as a whole."""

    file: str
    line: int
    column: int
    severity: Severity
    code: str
    """A stable kebab-case name of the check, e.g. `unknown-key`, `shadowed-route`."""
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """The form editors and people read: `file:line:col: error: message; remedy`.

        What is wrong with a whole folder or an unreadable file (line 0) has no line to show.
        """
        tail = f"; {self.remedy}" if self.remedy else ""
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{where}: {self.severity}: {self.message}{tail}"


class RulesError(Exception):
    """The rules cannot be used. Carries every problem found, errors first."""

    def __init__(self, problems: list[Problem]) -> None:
        """Keep `problems` sorted so that errors come before warnings, in file order."""
        self.problems = sorted(problems, key=lambda p: (p.severity != "error", p))
        super().__init__("\n".join(str(p) for p in self.problems))
