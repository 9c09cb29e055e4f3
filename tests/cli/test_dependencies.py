"""Every dependency is declared, imported and explained; nothing else is imported."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAGE = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
# Programs of other people's libraries, which `make test-clients` installs from their own list.
CLIENT_SCRIPTS = ROOT / "tests" / "clients" / "scripts"
PACKAGES = ("rules", "addon", "sidecar", "cli")
# Distributions that are called otherwise when imported.
IMPORTED_AS = {
    "pyyaml": "yaml",
    "pyahocorasick": "ahocorasick",
    "google-re2": "re2",
    "nvidia-ml-py": "pynvml",
    "backports.zstd": "backports",
}
# Theirs to bring: aiohttp's own types, mitmproxy's decoder, pip for the models.
BROUGHT_ALONG = {"multidict", "yarl", "brotli", "pip"}
# Not from a registry, and only where the person has it.
OPTIONAL = {"nanovllm", "compression"}
# Used as programs or as plugins, or by mypy.
PROGRAMS = {
    *("ruff", "mypy", "import-linter", "pytest-asyncio", "pytest-timeout", "pytest-xdist"),
    *("types-pyyaml", "types-psutil"),
}


def names(requirements: Iterable[str]) -> list[str]:
    return [re.split(r"[><=!~;\[ ]", r, maxsplit=1)[0].lower() for r in requirements]


RUNTIME = names(PROJECT["project"]["dependencies"])
EXTRA = names(PROJECT["project"]["optional-dependencies"]["local"])
DEV = names(PROJECT["dependency-groups"]["dev"])


@functools.cache
def imports(folders: tuple[str, ...]) -> set[str]:
    """Top names of what the files under `folders` import, in whatever way a program can see."""
    found: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if path.parent == CLIENT_SCRIPTS:
                continue
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    found.add(node.module.partition(".")[0])
    return found


def import_name(distribution: str) -> str:
    return IMPORTED_AS.get(distribution, distribution.replace("-", "_"))


@pytest.mark.parametrize("name", [*RUNTIME, *EXTRA])
def test_what_is_installed_for_everybody_is_imported(name: str) -> None:
    assert import_name(name) in imports(PACKAGES)


@pytest.mark.parametrize("name", [n for n in DEV if n not in PROGRAMS])
def test_what_is_installed_for_development_is_imported(name: str) -> None:
    assert import_name(name) in imports(("tests",))


def test_nothing_is_imported_that_is_not_declared() -> None:
    ours = {f"turnout_{room}" for room in PACKAGES} | set(PACKAGES) | {"tests"}
    helpers = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {
        path.name for path in (ROOT / "tests").iterdir()
    }
    declared = {import_name(name) for name in (*RUNTIME, *EXTRA)} | BROUGHT_ALONG | OPTIONAL
    known = declared | ours | set(sys.stdlib_module_names)
    assert imports(PACKAGES) - known == set()
    assert imports(("tests",)) - known - helpers <= {import_name(name) for name in DEV}


def rows() -> dict[str, list[str]]:
    found = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found[name.lower()] = cells[1:]
    return found


def test_the_page_explains_each_and_no_other() -> None:
    builders = names(PROJECT["build-system"]["requires"])
    assert set(rows()) == {*RUNTIME, *EXTRA, *DEV, *builders}
    for name, (licence, reason, why) in rows().items():
        assert licence, name
        assert reason, name
        assert why or name in DEV, name


@pytest.mark.parametrize("name", sorted({*RUNTIME, *EXTRA, *DEV}))
def test_the_licence_is_the_one_that_the_package_states(name: str) -> None:
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    stated = " ".join(
        [
            metadata.get("License-Expression") or metadata.get("License") or "",
            *(c for c in metadata.get_all("Classifier") or () if c.startswith("License")),
        ]
    )
    family = re.split(r"[-, ]", rows()[name][0])[0]
    assert re.search(family, stated, re.IGNORECASE), (family, stated[:200])
