"""`/v1/batches`: create, look at, list, cancel. The work itself is the runner's."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from aiohttp import web

from turnout_sidecar.batches.paging import page
from turnout_sidecar.batches.records import ENDPOINTS
from turnout_sidecar.batches.runner import BatchRunner
from turnout_sidecar.batches.store import BatchStore
from turnout_sidecar.gateway import plain_error
from turnout_sidecar.intake import Refusal, read_body

MAX_BODY_BYTES = 256 * 1024
_WINDOW = re.compile(r"([1-9]\d{0,3})h")


class _Order(msgspec.Struct, frozen=True):
    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None


class BatchesApi:
    """Handlers around store and runner."""

    def __init__(self, store: BatchStore, runner: BatchRunner) -> None:
        """Stateless but for the two."""
        self._store = store
        self._runner = runner

    async def create(self, http: web.Request) -> web.StreamResponse:
        """`POST /v1/batches`."""
        try:
            order = msgspec.json.decode(await read_body(http, MAX_BODY_BYTES), type=_Order)
        except Refusal as refused:
            failure = refused.failure
            return plain_error(failure.status, failure.code, failure.message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return plain_error(400, "bad_batch", str(error))
        window = _WINDOW.fullmatch(order.completion_window)
        if order.endpoint not in ENDPOINTS:
            return plain_error(400, "bad_endpoint", f"endpoint must be one of {ENDPOINTS}")
        if window is None:
            return plain_error(400, "bad_window", 'completion_window must be hours, e.g. "24h"')
        store = self._store
        if await store.run(store.file, order.input_file_id) is None:
            return plain_error(404, "file_not_found", f"no file {order.input_file_id[:100]!r}")
        batch = await store.run(
            store.create_batch,
            order.input_file_id,
            order.endpoint,
            order.completion_window,
            int(window[1]) * 3600,
            order.metadata,
        )
        self._runner.wake()
        return web.json_response(await store.run(store.to_json, batch))

    async def get(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/batches/{id}`."""
        store = self._store
        batch = await store.run(store.batch, http.match_info["id"])
        if batch is None:
            return _missing(http)
        return web.json_response(await store.run(store.to_json, batch))

    async def list_all(self, http: web.Request) -> web.StreamResponse:
        """`GET /v1/batches`."""
        return page(http, await self._store.run(self._rows))

    async def cancel(self, http: web.Request) -> web.StreamResponse:
        """`POST /v1/batches/{id}/cancel`."""
        store = self._store
        batch_id = http.match_info["id"]
        batch = await store.run(store.cancel, batch_id)
        if batch is not None:
            self._runner.wake()
            return web.json_response(await store.run(store.to_json, batch))
        ended = await store.run(store.batch, batch_id)
        if ended is None:
            return _missing(http)
        if ended.status in ("cancelling", "cancelled"):
            return web.json_response(await store.run(store.to_json, ended))
        return plain_error(409, "batch_ended", f"the batch is {ended.status} already")

    def _rows(self) -> list[dict[str, Any]]:
        return [self._store.to_json(batch) for batch in self._store.batches()]


def _missing(http: web.Request) -> web.Response:
    return plain_error(404, "batch_not_found", f"no batch {http.match_info['id'][:100]!r}")
