"""The pages for people: their links lead somewhere, and the commands they show exist."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import pytest

from turnout_cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
    if not path.name.startswith(".")
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# `turnout …` in a code span or at a prompt; what follows a `--` alone is another's command line.
_COMMAND = re.compile(r"(?:`|\$ (?:\.venv/bin/)?)turnout ([a-z]+)([^`\n#|]*)")


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def anchors(page: Path) -> set[str]:
    """Headings as GitHub and its like make anchors of them."""
    found = set()
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("#"):
            words = re.sub(r"[`*]", "", line.lstrip("#").strip().lower())
            found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in _LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def parser_of(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"turnout_cli.commands.{command}").add_arguments(parser)
    return parser


def options(parser: argparse.ArgumentParser) -> set[str]:
    """All option strings, those of actions such as `models pull` included."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                found |= options(sub)
    return found


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_and_their_options_exist(page: Path) -> None:
    for command, rest in _COMMAND.findall(page.read_text("utf-8")):
        assert command in COMMANDS, f"{page.name}: turnout {command}"
        own = re.split(r"\s--(?:\s|$)", f" {rest}")[0]
        used = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", own))
        assert used <= options(parser_of(command)), f"{page.name}: turnout {command}{rest}"


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    missing = [p.name for p in (ROOT / "docs").glob("*.md") if f"docs/{p.name}" not in text]
    # Reached from another page: the rest of what security and contributing say.
    others = "".join(p.read_text("utf-8") for p in PAGES if p.name != "README.md")
    assert [name for name in missing if name not in others] == []
