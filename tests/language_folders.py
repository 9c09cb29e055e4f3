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


ARTICLE_ROUTES = """\
# config/routes.yaml
routes:
  - name: code_completion
    match: [code, 函数, bug, debug]
    priority: 10
    target: vllm/code-model
  - name: translation
    match: [翻译, translate, 英文, 日文]
    priority: 9
    target: api/translate-model
  - name: fallback
    match: [.*]
    target: vllm/general-model
"""
ARTICLE_CONFIG = """\
# config/config.yaml
router:
  port: 8080
  default_timeout_ms: 500
inference:
  backend: vllm
  vllm_url: http://127.0.0.1:8000/v1
  model_path: ./models/qwen7b-int4
  max_num_seqs: 4
  gpu_memory_utilization: 0.6
"""
"""Both files as the source article prints them."""


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
