"""The clients are played only where they are installed: `make test-clients` says where, by
`TURNOUT_TEST_CLIENTS`. A run of all of them writes the matrix of docs/tools.md;
one where some are missing leaves it alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from clients import matrix
from clients.rows import PROGRAMS

INSTALLED = os.environ.get("TURNOUT_TEST_CLIENTS", "")
PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
WORDS = {"passed": "yes", "failed": "no", "skipped": "–"}

collect_ignore = [] if INSTALLED else ["test_programs.py"]
verdicts: dict[tuple[str, str, str], matrix.Verdict] = {}


@pytest.fixture(scope="session")
def installed() -> Path:
    return Path(INSTALLED).resolve()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what each check came to."""
    report = yield
    given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if {"program", "way", "check"} <= given.keys() and (report.when == "call" or report.failed):
        reason = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
        key = (given["program"].id, given["way"], given["check"])
        verdicts[key] = matrix.Verdict(WORDS[report.outcome], reason)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the matrix if every check of every client was tried."""
    if len(verdicts) != len(PROGRAMS) * len(matrix.WAYS) * len(matrix.CHECKS):
        return
    folder = Path(INSTALLED).resolve()
    with contextlib.suppress(LookupError):
        versions = {program.id: program.version(folder) for program in PROGRAMS}
        matrix.write(PAGE, matrix.table(PROGRAMS, versions, verdicts))
