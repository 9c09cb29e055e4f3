"""The matrix of docs/tools.md: one row a client and way, written from what a run showed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clients.programs import WAYS, Program

CHECKS = ("starts", "routed", "streams", "tool loop", "key stays")
BEGIN, END = "<!-- clients: begin -->", "<!-- clients: end -->"
_WAY_NAMES = {"proxy": "`turnout run`", "base-url": "base URL"}
_API_NAMES = {"chat": "chat", "responses": "Responses", "messages": "Anthropic"}


@dataclass(frozen=True)
class Verdict:
    """How one check of one client and way ended."""

    word: str
    """`yes`, `no`, or `–`: it does not apply."""
    reason: str = ""


def table(
    programs: Iterable[Program],
    versions: Mapping[str, str],
    verdicts: Mapping[tuple[str, str, str], Verdict],
) -> str:
    """Markdown; `versions` by a program's id, `verdicts` by its id, the way and the check."""
    notes: list[str] = []

    def mark(reason: str) -> str:
        if not reason:
            return ""
        if reason not in notes:
            notes.append(reason)
        return f" ({notes.index(reason) + 1})"

    lines = [
        f"| client | version | API | way | {' | '.join(CHECKS)} |",
        f"|{'---|' * (4 + len(CHECKS))}",
    ]
    for program in programs:
        for way in WAYS:
            name = program.name + mark(program.note)
            cells = [name, versions[program.id], _API_NAMES.get(program.speaks, program.speaks)]
            cells.append(_WAY_NAMES[way])
            for check in CHECKS:
                verdict = verdicts[program.id, way, check]
                is_counted = check == "streams" and verdict.word == "yes" and not program.is_shown
                cells.append(verdict.word + mark(ON_THE_WIRE if is_counted else verdict.reason))
            lines.append(f"| {' | '.join(cells)} |")
    listed = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, "", *listed]) if listed else "\n".join(lines)


ON_THE_WIRE = "it prints whole messages; the pieces reached it one by one"


def write(page: Path, content: str) -> None:
    """Put `content` between the markers of `page`; raises `ValueError` if they are not there."""
    text = page.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{head}{begin}\n\n{content}\n\n{end}{tail}")
