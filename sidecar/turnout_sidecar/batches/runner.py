"""Runs batches with what interactive traffic leaves over, and resumes them after any stop.

Each request goes the gateway's way, at batch priority. What is refused for lack of room waits and
is tried again until the batch expires; what fails otherwise is tried a few times and then recorded
as failed. All state is the store's: this only knows which requests are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
import time

from turnout_sidecar.batches.records import Batch, Job, Outcome
from turnout_sidecar.batches.store import BatchStore
from turnout_sidecar.dispatching import Dispatcher, Undeliverable
from turnout_sidecar.exchanging import Failed
from turnout_sidecar.failures import Failure
from turnout_sidecar.intake import Intake, Refusal
from turnout_sidecar.live_rules import LiveRules
from turnout_sidecar.metrics import Metrics

log = logging.getLogger(__name__)
WORKERS = 8
MAX_TRIES = 5
MAX_PAUSE_S = 60.0
ROOM_TIMEOUT_S = 600.0
IDLE_S = 2.0
MAX_RESULT_BYTES = 64 * 1024 * 1024
_NO_ROOM = (408, 429, 503, 504)
_HEADERS = [
    ("content-type", "application/json"),
    ("x-turnout-priority", "batch"),
]


class BatchRunner:
    """One loop hands jobs to at most `WORKERS` tasks. `wake` after every change of a batch."""

    def __init__(
        self,
        store: BatchStore,
        intake: Intake,
        dispatcher: Dispatcher,
        live: LiveRules,
        metrics: Metrics,
    ) -> None:
        """Nothing runs yet."""
        self._store = store
        self._intake = intake
        self._dispatcher = dispatcher
        self._live = live
        self._metrics = metrics
        # Requests under way by (batch, line); only the loop adds, the tasks' ends remove.
        self._working: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """How many requests are under way."""
        return len(self._working)

    def wake(self) -> None:
        """Something changed: look at once."""
        self._news.set()

    async def start(self) -> None:
        """Begin, with what an earlier process left undone first."""
        self._loop = asyncio.create_task(self._run(), name="batches")

    async def close(self) -> None:
        """Stop at once; requests under way are pending again at the next start."""
        tasks = [t for t in (self._loop, *self._working.values()) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._store.close()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            try:
                is_busy = self._store.is_used and await self._step()
            except Exception:
                log.exception("the batch runner failed on a step")
                is_busy = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), IDLE_S if is_busy else None)

    async def _step(self) -> bool:
        """Move every active batch on; whether any is left."""
        batches = await self._store.run(self._store.active)
        for batch in batches:
            try:
                await self._move_on(batch)
            except Exception:
                log.exception("batch %s could not be moved on; the others go on", batch.id)
        return bool(batches)

    async def _move_on(self, batch: Batch) -> None:
        store = self._store
        if batch.status == "validating":
            await store.run(store.take_in, batch)
            self.wake()
        elif batch.status == "finalizing":
            await store.run(store.finish, batch.id, "completed")
        elif batch.status == "cancelling":
            await self._stop(batch.id)
            await store.run(store.finish, batch.id, "cancelled")
        elif time.time() >= batch.expires_at:
            await self._stop(batch.id)
            await store.run(
                store.give_up_pending, batch.id, "batch_expired", "not run before the batch expired"
            )
            await store.run(store.finish, batch.id, "expired")
        else:
            await self._hand_out(batch)

    async def _hand_out(self, batch: Batch) -> None:
        room = WORKERS - len(self._working)
        under_way = {line for name, line in self._working if name == batch.id}
        if room > 0:
            for job in await self._store.run(self._store.pending, batch, under_way, room):
                self._begin(job)
                under_way.add(job.line)
        if not under_way and not await self._store.run(self._store.pending_count, batch.id):
            await self._store.run(self._store.finish, batch.id, "completed")

    def _begin(self, job: Job) -> None:
        key = (job.batch_id, job.line)
        task = asyncio.create_task(self._work(job))
        self._working[key] = task

        def ended(done: asyncio.Task[None]) -> None:
            self._working.pop(key, None)
            self.wake()
            if not done.cancelled() and (error := done.exception()) is not None:
                log.error("a batch request failed unexpectedly", exc_info=error)

        task.add_done_callback(ended)

    async def _stop(self, batch_id: str) -> None:
        tasks = [task for key, task in self._working.items() if key[0] == batch_id]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, job: Job) -> None:
        """Until the request has an outcome; waits for room without counting that as a try."""
        tries = waits = 0
        while True:
            try:
                outcome = await self._try(job)
            except Exception:
                log.exception("a batch request failed unexpectedly")
                outcome = Outcome(status=None, code="internal_error", message="see the log")
            if isinstance(outcome, Outcome):
                break
            is_no_room = not outcome.is_targets_fault and outcome.status in _NO_ROOM
            tries, waits = (tries, waits + 1) if is_no_room else (tries + 1, waits)
            if tries >= MAX_TRIES or not outcome.is_retryable:
                outcome = _given_up(outcome)
                break
            pause_s = outcome.retry_after_s or min(2.0 ** (tries + waits) / 2, MAX_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.25))  # noqa: S311 - no secret
        if await self._record(job, outcome):
            kind = "completed" if outcome.is_success else "failed"
            self._metrics.batch_requests.labels(kind).inc()

    async def _record(self, job: Job, outcome: Outcome) -> bool:
        """Keep the outcome, however long the disk is full: asking a model again costs more."""
        pause_s = 1.0
        while True:
            try:
                return await self._store.run(self._store.record, job, outcome)
            except sqlite3.Error as error:
                log.warning("a batch result cannot be stored (%s); trying again", error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    async def _try(self, job: Job) -> Outcome | Failure:
        """The outcome, or the failure of a try that may be repeated."""
        try:
            journey = await self._intake.plan(
                self._live.current,
                method="POST",
                path=job.endpoint,
                headers=_HEADERS,
                body=job.body,
            )
        except Refusal as refused:
            failure = refused.failure
            return Outcome(status=failure.status, body=failure.payload("chat", refused.route))
        journey.client = job.batch_id
        journey.room_timeout_s = ROOM_TIMEOUT_S
        try:
            exchange = await self._dispatcher.dispatch(journey)
        except Undeliverable as undeliverable:
            failure = undeliverable.failure
            if failure.kind == "context":
                return _given_up(failure)
            return failure
        try:
            body = bytearray()
            async for chunk in exchange.chunks():
                body += chunk
                if len(body) > MAX_RESULT_BYTES:
                    return Outcome(status=None, code="too_large", message="the answer is too large")
        except Failed as failed:
            return failed.failure
        finally:
            await exchange.close()
        return Outcome(status=exchange.status, body=bytes(body))


def _given_up(failure: Failure) -> Outcome:
    if failure.body is not None:
        return Outcome(status=failure.status, body=failure.body)
    return Outcome(status=None, code=failure.code, message=failure.message)
