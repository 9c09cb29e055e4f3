"""The starter rules that come with Turnout: where they lie, what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from turnout_rules.document import Document
from turnout_rules.json_schema import SCHEMA_FILE, json_schema
from turnout_rules.problems import Problem
from turnout_rules.upstream_schema import read_upstreams
from turnout_rules.yaml_source import parse

FILES = ("routes.yaml", "upstreams.yaml", "probes.yaml", "turnout.yaml", "scripts/pick.py")
STARTER_TARGET = "local/smollm2"
"""Where the starter routes go."""


def targets_in(upstreams: str) -> list[str]:
    """The targets that an upstreams file lists, engines of this machine first."""
    problems: list[Problem] = []
    root = parse("upstreams.yaml", upstreams.encode(), problems)
    if root is None:
        return []
    document = Document("upstreams.yaml", problems)
    found = []
    for name, (_, node) in document.fields(root, "a rule file").items():
        if name == "upstreams":
            found += read_upstreams(document, node)
    found.sort(key=lambda upstream: not upstream.is_managed)
    return [f"{upstream.name}/{model}" for upstream in found for model in upstream.models]


def starter_folder() -> Path:
    """In an installed package they lie inside it, in a work tree beside it."""
    package = Path(__file__).parent
    installed = package / "starter"
    return installed if installed.is_dir() else package.parent


def starter_files() -> dict[str, str]:
    """Relative path to content, the editor's schema included."""
    folder = starter_folder()
    files = {name: (folder / name).read_text("utf-8") for name in FILES}
    return files | {SCHEMA_FILE: schema_text()}


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` (relative path to content) under `folder`. Raises OSError."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def schema_text() -> str:
    """The generated JSON Schema as a file."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
