"""`turnout batch` against a real sidecar process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar_kit import answering, provider, sidecar, write_rules
from turnout_cli.main import main

ROUTES = "routes:\n  - {name: all, match: [.*], target: one/a}\n"


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setenv("TURNOUT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TURNOUT_DATA_DIR", str(tmp_path / "data"))
    async with provider(answering("hello")) as one:
        upstreams = f"upstreams:\n  one: {{base_url: {one.url}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams)
        async with sidecar(rules) as it:
            port = int(it.url.rpartition(":")[2])
            record = {"port": port, "socket": it.socket, "pid": 1}
            (tmp_path / "run" / "sidecar.json").write_text(json.dumps(record))
            yield it.url


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.jsonl"
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    row = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    path.write_text("".join(json.dumps({"custom_id": f"r{n}", **row}) + "\n" for n in range(7)))
    return path


async def turnout(*arguments: str) -> int:
    return await asyncio.to_thread(main, ["batch", *arguments])


async def test_submit_status_fetch_list(
    gateway: str, jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await turnout("submit", str(jobs), "--wait", "--json") == 0
    batch = json.loads(capsys.readouterr().out)
    assert batch["request_counts"] == {"total": 7, "completed": 7, "failed": 0}
    assert await turnout("status", batch["id"]) == 0
    assert "completed  7 done, 0 failed of 7" in capsys.readouterr().out
    results = tmp_path / "results.jsonl"
    assert await turnout("fetch", batch["id"], "-o", str(results)) == 0
    assert len(results.read_text().splitlines()) == 7
    assert await turnout("list", "--json") == 0
    assert [b["id"] for b in json.loads(capsys.readouterr().out.splitlines()[-1])] == [batch["id"]]
    assert await turnout("list") == 0
    assert batch["id"] in capsys.readouterr().out


async def test_errors_are_one_line(
    gateway: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("nonsense\n")
    for arguments, said in (
        (("submit", str(tmp_path / "none.jsonl")), "no file"),
        (("submit", str(bad)), "bad.jsonl:1"),
        (("status", "batch_x"), "no batch"),
        (("cancel", "batch_x"), "no batch"),
        (("list", "--url", "http://127.0.0.1:9"), "cannot be reached"),
    ):
        assert await turnout(*arguments) == 1
        assert said in capsys.readouterr().err


async def test_without_a_sidecar_it_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNOUT_RUNTIME_DIR", str(tmp_path / "nothing"))
    assert await turnout("list") == 1
    assert "turnout up" in capsys.readouterr().err
