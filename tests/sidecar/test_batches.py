"""OpenAI's Files and Batch API with OpenAI's own client, and what a kill -9 leaves of a batch."""

from __future__ import annotations

import asyncio
import collections
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web

from sidecar_kit import (
    Behaviour,
    Provider,
    Sidecar,
    answering,
    completion,
    failing,
    hanging,
    provider,
    sidecar,
    sidecar_process,
    write_rules,
)
from turnout_sidecar.batches.records import Job, Outcome

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = "routes:\n  - {name: all, match: [.*], target: one/a}\n"
ENDPOINT = "/v1/chat/completions"


def lines(count: int, **more: Any) -> bytes:
    rows = []
    for number in range(count):
        message = {"role": "user", "content": f"number {number}"}
        body = {"model": "m", "messages": [message], **more}
        rows.append({"custom_id": f"r{number}", "method": "POST", "url": ENDPOINT, "body": body})
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


async def echo(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(completion(body["messages"][0]["content"]))


@pytest.fixture
async def one() -> AsyncIterator[Provider]:
    async with provider(echo) as it:
        yield it


def rules_for(tmp_path: Path, url: str, more: str = "") -> Path:
    upstreams = f"upstreams:\n  one: {{base_url: {url}{more}}}\n"
    return write_rules(tmp_path / "rules", ROUTES, upstreams)


@pytest.fixture
async def it(one: Provider, tmp_path: Path) -> AsyncIterator[Sidecar]:
    async with sidecar(rules_for(tmp_path, one.url)) as running:
        yield running


@asynccontextmanager
async def serving(
    tmp_path: Path, behaviour: Behaviour, more: str = ""
) -> AsyncIterator[tuple[Provider, openai.AsyncOpenAI]]:
    async with (
        provider(behaviour) as one,
        sidecar(rules_for(tmp_path, one.url, more)) as it,
        client_of(it.url) as client,
    ):
        yield one, client


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url + "/v1", api_key="x", max_retries=0)


async def submit(client: openai.AsyncOpenAI, data: bytes) -> Any:
    file = await client.files.create(file=("in.jsonl", data), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id,
        endpoint=ENDPOINT,
        completion_window="24h",
        metadata={"who": "me"},
    )


async def ended(client: openai.AsyncOpenAI, batch_id: str, timeout_s: float = 20) -> Any:
    async with asyncio.timeout(timeout_s):
        while True:
            batch = await client.batches.retrieve(batch_id)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
            await asyncio.sleep(0.05)


async def rows_of(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    content = await client.files.content(file_id)
    return [json.loads(row) for row in content.text.splitlines()]


async def test_a_batch_runs_to_its_output_file(it: Sidecar) -> None:
    async with client_of(it.url) as client:
        batch = await submit(client, lines(25))
        assert batch.status == "validating"
        done = await ended(client, batch.id)
        assert done.status == "completed"
        assert done.request_counts.model_dump() == {"completed": 25, "failed": 0, "total": 25}
        assert done.metadata == {"who": "me"}
        rows = await rows_of(client, done.output_file_id)
        listed = [b.id async for b in client.batches.list()]
    assert listed == [batch.id]
    assert [row["custom_id"] for row in rows] == [f"r{n}" for n in range(25)]
    for number, row in enumerate(rows):
        said = row["response"]["body"]["choices"][0]["message"]["content"]
        assert said == f"number {number}"
        assert row["response"]["status_code"] == 200


async def test_files_are_listed_read_and_deleted(it: Sidecar) -> None:
    async with client_of(it.url) as client:
        made = await client.files.create(file=("../../x.jsonl", b"{}\n"), purpose="batch")
        assert (made.filename, made.bytes) == ("x.jsonl", 3)
        assert [f.id async for f in client.files.list()] == [made.id]
        assert (await client.files.content(made.id)).read() == b"{}\n"
        assert (await client.files.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(made.id)


async def test_a_bad_input_file_fails_the_batch_with_lines(it: Sidecar, one: Provider) -> None:
    async with client_of(it.url) as client:
        batch = await submit(client, lines(2) + b"nonsense\n")
        done = await ended(client, batch.id)
    assert done.status == "failed"
    assert done.errors.data[0].line == 3
    assert one.bodies == []


async def test_bad_orders_are_refused(it: Sidecar) -> None:
    async with client_of(it.url) as client:
        call: Any = client.batches.create
        with pytest.raises(openai.NotFoundError):
            await call(input_file_id="file-x", endpoint=ENDPOINT, completion_window="24h")
        file = await client.files.create(file=("in.jsonl", b"{}"), purpose="batch")
        for changed in ({"endpoint": "/v1/images"}, {"completion_window": "soon"}):
            order = {"input_file_id": file.id, "endpoint": ENDPOINT, "completion_window": "24h"}
            with pytest.raises(openai.BadRequestError):
                await call(**(order | changed))
        with pytest.raises(openai.NotFoundError):
            await client.batches.retrieve("batch_x")


@pytest.mark.parametrize("body", [b"", b"--x", b"--x\r\n\r\nabc", b"--x--\r\n"])
async def test_a_broken_upload_is_a_400(it: Sidecar, body: bytes) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    async with (
        asyncio.timeout(5),
        aiohttp.ClientSession(headers=headers) as session,
        session.post(it.url + "/v1/files", data=body) as response,
    ):
        assert response.status == 400
    assert not list((it.service.data_dir / "batches" / "files").iterdir())


async def test_refusals_of_a_model_go_into_the_error_file(tmp_path: Path) -> None:
    async def picky(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        is_odd = body["messages"][0]["content"].endswith("1")
        return await (failing(400) if is_odd else answering("ok"))(http, body)

    async with serving(tmp_path, picky) as (_, client):
        done = await ended(client, (await submit(client, lines(3))).id)
        errors = await rows_of(client, done.error_file_id)
    assert done.status == "completed"
    assert done.request_counts.failed == 1
    assert errors[0]["custom_id"] == "r1"
    assert errors[0]["response"]["status_code"] == 400


async def test_a_busy_target_is_waited_for(tmp_path: Path) -> None:
    seen: collections.Counter[str] = collections.Counter()

    async def busy(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        name = body["messages"][0]["content"]
        seen[name] += 1
        if seen[name] == 1:
            return await failing(503)(http, body)
        return await echo(http, body)

    async with serving(tmp_path, busy) as (_, client):
        done = await ended(client, (await submit(client, lines(2))).id)
    assert done.request_counts.completed == 2


async def test_cancelling_keeps_what_is_done(tmp_path: Path) -> None:
    async def some(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        is_first = body["messages"][0]["content"].endswith(" 0")
        return await (echo if is_first else hanging)(http, body)

    async with serving(tmp_path, some) as (one, client):
        batch = await submit(client, lines(30))
        async with asyncio.timeout(10):
            while (await client.batches.retrieve(batch.id)).request_counts.completed < 1:
                await asyncio.sleep(0.05)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        done = await ended(client, batch.id)
        rows = await rows_of(client, done.output_file_id)
        async with asyncio.timeout(5):
            await one.gone.wait()
    assert done.status == "cancelled"
    assert [row["custom_id"] for row in rows] == ["r0"]


async def test_interactive_requests_overtake_a_batch(tmp_path: Path) -> None:
    async def steady(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.15)
        return await echo(http, body)

    async with serving(tmp_path, steady, ", max_concurrency: 1") as (one, client):
        batch = await submit(client, lines(30))
        async with asyncio.timeout(10):
            while len(one.bodies) < 2:
                await asyncio.sleep(0.01)
        message: Any = {"role": "user", "content": "urgent"}
        await client.chat.completions.create(model="m", messages=[message])
        served = [body["messages"][0]["content"] for body in one.bodies]
        await client.batches.cancel(batch.id)
    assert served.index("urgent") <= 5


async def test_a_kill_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async def slowly(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await echo(http, body)

    async with provider(slowly) as one:
        rules = rules_for(tmp_path, one.url, ", max_concurrency: 4")
        batch_id = ""
        for kill_after in (10, 25, 45):
            with sidecar_process(rules, tmp_path) as (child, ready):
                async with client_of(f"http://127.0.0.1:{ready['port']}") as client:
                    if not batch_id:
                        batch_id = (await submit(client, lines(60))).id
                    async with asyncio.timeout(20):
                        while len(one.bodies) < kill_after:
                            await asyncio.sleep(0.01)
                child.send_signal(signal.SIGKILL)
                child.wait()
        with sidecar_process(rules, tmp_path) as (child, ready):
            async with client_of(f"http://127.0.0.1:{ready['port']}") as client:
                done = await ended(client, batch_id, 30)
                rows = await rows_of(client, done.output_file_id)
            child.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 10) == 0
    assert done.status == "completed"
    assert done.request_counts.completed == 60
    assert [row["custom_id"] for row in rows] == [f"r{n}" for n in range(60)]
    repeated = len(one.bodies) - 60
    assert repeated <= 3 * 8, "only requests under way at a kill are sent again"


async def test_what_did_not_run_in_time_is_in_the_error_file(tmp_path: Path) -> None:
    async with (
        provider(hanging) as one,
        sidecar(rules_for(tmp_path, one.url)) as it,
        client_of(it.url) as client,
    ):
        file = await client.files.create(file=("in.jsonl", lines(3)), purpose="batch")
        store = it.service.batch_store
        batch = await store.run(store.create_batch, file.id, ENDPOINT, "24h", 1, None)
        it.service.batches.wake()
        done = await ended(client, batch.id)
        errors = await rows_of(client, done.error_file_id)
    assert done.status == "expired"
    assert [row["error"]["code"] for row in errors] == ["batch_expired"] * 3


async def test_a_result_waits_for_a_disk_that_cannot_take_it(
    it: Sidecar, one: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = it.service.batch_store
    record, refused = store.record, []

    def full_at_first(job: Job, outcome: Outcome) -> bool:
        if not refused:
            refused.append(job)
            raise sqlite3.OperationalError("database or disk is full")
        return record(job, outcome)

    monkeypatch.setattr(store, "record", full_at_first)
    async with client_of(it.url) as client:
        done = await ended(client, (await submit(client, lines(1))).id)
    assert done.request_counts.completed == 1
    assert refused
    assert len(one.bodies) == 1, "the model is not asked a second time"
