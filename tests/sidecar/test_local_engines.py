"""The gateway in front of engines that it keeps: a real program started, killed and queued for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sidecar_kit import Sidecar, answering, eventually, provider, sidecar, write_rules

pytestmark = pytest.mark.usefixtures("own_folders")
ENGINE = Path(__file__).parents[1] / "engines" / "fake_engine.py"
ROUTES = """
routes:
  - name: strict
    match: [strict]
    priority: 5
    target: local/m
    fallback: [one/a]
    timeout_ms: 400
  - {name: all, match: [.*], target: local/m}
"""


@asynccontextmanager
async def gateway(
    tmp_path: Path, *flags: str, model: str = "", settings: str = ""
) -> AsyncIterator[Sidecar]:
    command = [sys.executable, str(ENGINE), "--port", "{port}", *flags]
    command += ["--journal", str(tmp_path / "journal")]
    async with provider(answering("elsewhere")) as one:
        models = f"{{m: {{command: {json.dumps(command)}{model}}}}}"
        upstreams = f"upstreams:\n  one: {{base_url: {one.url}}}\n"
        upstreams += f"  local: {{engine: command, models: {models}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams, settings)
        async with sidecar(rules) as it:
            yield it


async def ask(it: Sidecar, text: str = "hi", **more: Any) -> tuple[int, dict[str, str], bytes]:
    body = {"model": "x", "messages": [{"role": "user", "content": text}], **more}
    async with (
        asyncio.timeout(30),
        aiohttp.ClientSession() as session,
        session.post(it.url + "/v1/chat/completions", json=body) as response,
    ):
        headers = {k.lower(): v for k, v in response.headers.items()}
        return response.status, headers, await response.read()


def starts(tmp_path: Path) -> list[int]:
    journal = tmp_path / "journal"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith("start")]


async def test_fifty_at_a_cold_start_start_one_engine(tmp_path: Path) -> None:
    settings = "sidecar: {queue_length: 64}\n"
    async with gateway(tmp_path, "--load-s", "0.5", settings=settings) as it:
        answers = await asyncio.gather(*(ask(it, stream=n % 2 == 0) for n in range(50)))
    assert [status for status, _, _ in answers] == [200] * 50
    assert all(b"t2" in body for _, _, body in answers)
    assert len(starts(tmp_path)) == 1


@pytest.mark.parametrize("is_stream", [True, False])
async def test_each_piece_of_an_answer_is_a_sign_of_its_engines_life(
    tmp_path: Path, is_stream: bool
) -> None:
    async with gateway(tmp_path) as it:
        assert (await ask(it, stream=is_stream))[0] == 200
        backend = it.service.backends._supervisor.backends["local/m"]
        assert backend.flowed > backend.ready_since


async def test_a_stream_is_kept_alive_and_told_while_the_engine_loads(tmp_path: Path) -> None:
    settings = "sidecar: {keepalive_s: 0.2, loading_note: true}\n"
    async with gateway(tmp_path, "--load-s", "1", settings=settings) as it:
        status, _, body = await ask(it, stream=True)
    assert status == 200
    assert b"local/m is loading" in body
    assert b": keep-alive" in body
    assert b"t2" in body
    assert body.endswith(b"data: [DONE]\n\n")


async def test_an_engine_killed_under_a_request_is_started_again_for_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--tokens", "20", "--token-s", "0.05") as it:
        await ask(it)
        under_way = asyncio.create_task(ask(it))
        await asyncio.sleep(0.3)
        os.kill(starts(tmp_path)[0], signal.SIGKILL)
        status, headers, body = await under_way
    assert status == 200
    assert b"t19" in body
    assert "local/m=200" in headers["x-turnout-attempts"]
    assert len(starts(tmp_path)) == 2


async def test_a_full_queue_is_answered_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--token-s", "0.2", model=", max_num_seqs: 1, queue: 1") as it:
        await ask(it)
        held = [asyncio.create_task(ask(it)) for _ in range(2)]
        await asyncio.sleep(0.2)
        status, headers, body = await ask(it)
        assert [s for s, _, _ in await asyncio.gather(*held)] == [200, 200]
    assert status == 429
    assert json.loads(body)["error"]["code"] == "queue_full"
    assert int(headers["retry-after"]) >= 1
    assert headers["x-turnout-queue-position"] == "1"


async def test_a_slow_start_falls_back_within_the_routes_deadline(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--load-s", "5") as it:
        status, headers, body = await ask(it, "strict")
    assert status == 200
    assert b"elsewhere" in body
    assert headers["x-turnout-attempts"] == "local/m=timeout, one/a=200"


async def test_a_client_that_leaves_the_queue_leaves_no_trace(tmp_path: Path) -> None:
    async with gateway(tmp_path, "--token-s", "0.3", model=", max_num_seqs: 1") as it:
        await ask(it)
        held = asyncio.create_task(ask(it))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(ask(it))
        await eventually(lambda: it.service.backends.status()[0].waiting == 1)
        waiting.cancel()
        await eventually(lambda: it.service.backends.status()[0].waiting == 0)
        assert (await held)[0] == 200


async def test_engines_are_started_stopped_and_read_over_http(tmp_path: Path) -> None:
    async with gateway(tmp_path) as it, aiohttp.ClientSession() as session:
        base = f"{it.url}/backends"
        async with session.post(f"{base}/local/m/start") as response:
            assert response.status == 200
            assert (await response.json())["backends"][0]["state"] == "ready"
        async with session.get(f"{base}/local/m/logs") as response:
            assert "ready" in await response.text()
        async with session.get(f"{it.url}/metrics") as response:
            text = await response.text()
            assert 'turnout_backend_state{backend="local/m",state="ready"} 1.0' in text
        async with session.post(f"{base}/local/m/stop") as response:
            assert (await response.json())["backends"][0]["state"] == "stopped"
        async with session.post(f"{base}/local/nobody/start") as response:
            assert response.status == 404


async def test_nothing_survives_the_sidecar(tmp_path: Path) -> None:
    async with gateway(tmp_path) as it:
        await ask(it)
        (pid,) = starts(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
