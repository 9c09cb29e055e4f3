"""`turnout status|start|stop|logs` against the sidecar's own HTTP handlers and a real engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from engine_kit import fake_model, running, upstream_of
from turnout_cli.main import main
from turnout_sidecar.backend_api import BackendApi


@pytest.fixture
async def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A sidecar with one fake engine, found through the runtime folder."""
    local = upstream_of(fake_model("chat"), fake_model("broken", "--exit-code", "3"))
    monkeypatch.setenv("TURNOUT_RUNTIME_DIR", str(tmp_path))
    async with running(tmp_path, local) as backends:
        api = BackendApi(backends)
        app = web.Application()
        app.router.add_get("/backends", api.list_all)
        app.router.add_post("/backends/{name:.+}/start", api.start)
        app.router.add_post("/backends/{name:.+}/stop", api.stop)
        app.router.add_get("/backends/{name:.+}/logs", api.logs)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        (tmp_path / "sidecar.json").write_text(json.dumps({"port": port}))
        yield f"http://127.0.0.1:{port}"
        await runner.cleanup()


async def turnout(*arguments: str) -> int:
    return await asyncio.to_thread(main, list(arguments))


async def test_start_status_logs_and_stop(sidecar: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await turnout("start", "local/chat") == 0
    assert "local/chat is ready" in capsys.readouterr().out
    assert await turnout("status") == 0
    assert "ready" in capsys.readouterr().out
    assert await turnout("status", "--json") == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["name"], row["state"], row["starts"]) == ("local/chat", "ready", 1)
    assert await turnout("logs", "local/chat", "-n", "5") == 0
    assert "ready" in capsys.readouterr().out
    assert await turnout("stop", "local/chat") == 0
    capsys.readouterr()
    assert await turnout("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "stopped"


async def test_a_start_that_fails_says_why(
    sidecar: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await turnout("start", "local/broken") == 1
    assert "local/broken failed" in capsys.readouterr().err
    assert await turnout("status") == 0
    assert "failed" in capsys.readouterr().out


async def test_an_unknown_backend_is_named_with_those_there_are(
    sidecar: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await turnout("logs", "local/nothing") == 1
    assert "local/chat" in capsys.readouterr().err


def test_without_a_sidecar_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNOUT_RUNTIME_DIR", str(tmp_path))
    assert main(["status"]) == 1
    assert "turnout up" in capsys.readouterr().err
