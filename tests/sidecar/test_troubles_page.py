"""docs/troubles.md tells the truth: its kinds, lines and settings are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turnout_sidecar.diagnosis import MEMORY_KINDS, TROUBLES, cause_of

PAGE = (Path(__file__).parents[2] / "docs" / "troubles.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The table under a heading or a sentence, without its head."""
    section = PAGE.partition(heading)[2]
    lines = re.search(r"\n\|(?:.*\|\n)+", section)
    assert lines is not None
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines.group(0).strip().splitlines()[2:]
    ]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


LINES = [
    (row[0].strip("`"), line, row[3])
    for row in rows("## What the log says")
    for line in quoted(row[1])
]


def test_every_kind_of_the_table_is_on_the_page() -> None:
    assert {kind for kind, _, _ in LINES} == {trouble.kind for trouble in TROUBLES}


@pytest.mark.parametrize(("kind", "line", "retried"), LINES)
def test_a_line_on_the_page_is_diagnosed_as_the_page_says(
    kind: str, line: str, retried: str
) -> None:
    cause = cause_of("exit", 1, [line.replace("…", " of the card; ")])
    assert cause.kind == kind
    assert retried.startswith("once") == (kind in MEMORY_KINDS)
    assert bool(cause.retry_settings) == ("with that" in retried or "with the share" in retried)


ENDS = {
    "killed": ("exit", -9),
    "core_died": ("dead", None),
    "hung": ("hung", None),
    "stalled": ("stalled", None),
    "exited": ("exit", 0),
}


def test_ends_without_a_line_are_called_as_on_the_page() -> None:
    assert [row[0].strip("`") for row in rows("the end does")] == list(ENDS)
    for kind, (reason, code) in ENDS.items():
        assert cause_of(reason, code, ["nothing known"]).kind == kind
