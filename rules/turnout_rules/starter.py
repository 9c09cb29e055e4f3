"""The starter rules that come with Turnout: where they lie, what they hold."""

from __future__ import annotations

import json
from pathlib import Path

from turnout_rules.json_schema import SCHEMA_FILE, json_schema

FILES = ("routes.yaml", "upstreams.yaml", "probes.yaml", "turnout.yaml", "scripts/pick.py")


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


def schema_text() -> str:
    """The generated JSON Schema as a file."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
