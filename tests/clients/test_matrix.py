"""The matrix in the documentation is of the clients that are tried, in the versions pinned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clients.matrix import BEGIN, CHECKS, END, Verdict, table, write
from clients.programs import WAYS, Program
from clients.rows import PROGRAMS

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "tools.md"


def rows() -> list[list[str]]:
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def pinned() -> dict[str, str]:
    """Versions by `npm:name` and `pip:venv/name`, as the table of programs speaks of them."""
    packages = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    versions = {f"npm:{name}": version for name, version in packages.items()}
    for page in FOLDER.glob("requirements-*.txt"):
        venv = page.stem.removeprefix("requirements-")
        found = re.findall(r"^([\w.-]+)(?:\[.*\])?==(.+)$", page.read_text(), re.M)
        versions |= {f"pip:{venv}/{name}": version for name, version in found}
    return versions


def test_every_client_and_way_has_its_row_and_no_other_has() -> None:
    named = [re.sub(r" \(\d+\)$", "", row[0]) for row in rows()]
    assert named == [program.name for program in PROGRAMS for _ in WAYS]
    assert all(len(row) == 4 + len(CHECKS) for row in rows())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.id)
def test_a_client_is_pinned_and_the_matrix_has_that_version(program: Program) -> None:
    if program.package.startswith("path:"):
        return
    number = PROGRAMS.index(program) * len(WAYS)
    wanted = pinned()[program.package]
    assert re.fullmatch(r"\d+(\.\d+)+", wanted)
    assert {row[1] for row in rows()[number : number + len(WAYS)]} == {wanted}


def test_ids_of_clients_are_their_own() -> None:
    assert len({program.id for program in PROGRAMS}) == len(PROGRAMS)


def test_a_failed_check_and_a_reason_are_seen_in_the_table(tmp_path: Path) -> None:
    program = Program("one", "pip:libs/one", lambda place: [], note="told so")
    verdicts = {(program.id, way, check): Verdict("yes") for way in WAYS for check in CHECKS}
    verdicts[program.id, "proxy", "routed"] = Verdict("no")
    verdicts[program.id, "base-url", "tool loop"] = Verdict("–", "it has none")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nearlier table\n{END}\nafter\n")
    write(page, table([program], {program.id: "1.0"}, verdicts))
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")
    assert (
        "| one (1) | 1.0 | chat | `turnout run` | yes | no | yes | yes | yes |" in page.read_text()
    )
    assert "| one (1) | 1.0 | chat | base URL | yes | yes | yes | – (2) | yes |" in page.read_text()
    assert "1. told so\n2. it has none" in page.read_text() and "earlier" not in page.read_text()
