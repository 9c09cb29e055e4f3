"""Saving a rules file puts it in force within two seconds; a broken one changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy_kit import Proxy, proxy, upstream, wait_until, write_rules

RULES = """
routes:
  - {{name: only, match: ["{word}"], priority: 1, target: near/{model}}}
  - {{name: rest, match: [.*], target: pass}}
upstreams:
  near: {{base_url: "{url}/v1"}}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Any]]:
    folder = tmp_path_factory.mktemp("reload")
    with upstream() as near:
        rules = write_rules(
            folder / "rules",
            routes=RULES.format(word="alpha", model="one", url=near.url),
            turnout=f'proxy: {{origin: "{near.url}"}}\nclassifier: {{kind: "off"}}\n',
        )
        with proxy(folder / "p", rules) as p:
            yield p, near


def target_of(p: Proxy, word: str) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": f"{word} {time.monotonic()}"}]}
    url = f"{p.base_url}/v1/chat/completions"
    answer = httpx2.post(url, json=body, trust_env=False, timeout=10)
    return str(answer.headers["x-turnout-target"])


def by_rename(path: Path, text: str) -> None:
    fresh = path.with_suffix(".swp")
    fresh.write_text(text)
    fresh.replace(path)


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def by_symlink(path: Path, text: str) -> None:
    real = path.parent.parent / f"real-{time.monotonic_ns()}.txt"
    real.write_text(text)
    link = path.with_suffix(".link")
    link.symlink_to(real)
    link.replace(path)


@pytest.mark.parametrize("save", [by_rename, in_place, by_symlink])
def test_a_saved_change_is_live_within_two_seconds(running: Any, save: Any) -> None:
    p, near = running
    word, model = f"word{save.__name__}", f"model-{save.__name__}"
    save(p.rules / "routes.yaml", RULES.format(word=word, model=model, url=near.url))
    wait_until(lambda: target_of(p, word) == f"near/{model}", 2.0)


def test_broken_rules_keep_the_old_ones_and_say_why_until_repaired(running: Any) -> None:
    p, near = running
    path = p.rules / "routes.yaml"
    in_place(path, RULES.format(word="steady", model="old", url=near.url))
    wait_until(lambda: target_of(p, "steady") == "near/old", 3.0)
    in_place(path, "routes:\n  - name: x\n    mach: [steady]\n    target: near/new\n")
    wait_until(lambda: "routes.yaml:3" in p.log, 3.0)
    assert target_of(p, "steady") == "near/old"
    in_place(path, RULES.format(word="steady", model="new", url=near.url))
    wait_until(lambda: target_of(p, "steady") == "near/new", 3.0)
