"""Rule folders for tests of the routing language: written from texts, read back as findings."""

from __future__ import annotations

import textwrap
from pathlib import Path

from turnout_rules.loading import Folder, read_folder

UPSTREAMS = """\
upstreams:
  api:
    base_url: https://api.example.com/v1
  local:
    engine: llamacpp
    models: {small: {model_path: smollm2}}
"""


def write_folder(folder: Path, **files: str) -> Path:
    """Write `routes="…"` as `routes.yaml` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(textwrap.dedent(text), "utf-8")
    return folder


def read_routes_text(folder: Path, routes: str, upstreams: str = UPSTREAMS) -> Folder:
    """The folder made of one routes file and plain upstreams."""
    return read_folder(write_folder(folder, routes=routes, upstreams=upstreams))


def codes(read: Folder) -> list[str]:
    """The codes of all findings, sorted."""
    return sorted(problem.code for problem in read.problems)


def spots(read: Folder) -> list[str]:
    """`file:line:col code` of all findings, files without their folder."""
    return sorted(f"{Path(p.file).name}:{p.line}:{p.column} {p.code}" for p in read.problems)
