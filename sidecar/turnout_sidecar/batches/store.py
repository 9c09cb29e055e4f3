"""Batches, their requests and files, kept in SQLite (WAL) and a folder; survives a kill -9.

One thread owns the connection, so that the event loop never waits for the disk. A result is
recorded once, in one transaction with the change of its request's state: a request that was under
way when the process died is pending again, one that was answered stays answered.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from turnout_sidecar.batches.records import ACTIVE, Batch, Job, Outcome, Status, StoredFile
from turnout_sidecar.batches.validation import Row, validate

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
  id TEXT PRIMARY KEY, filename TEXT NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
  id TEXT PRIMARY KEY, endpoint TEXT NOT NULL, input_file_id TEXT NOT NULL,
  completion_window TEXT NOT NULL, status TEXT NOT NULL, created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, metadata TEXT NOT NULL, errors TEXT NOT NULL,
  in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER, failed_at INTEGER,
  expired_at INTEGER, cancelling_at INTEGER, cancelled_at INTEGER, output_file_id TEXT,
  error_file_id TEXT, total INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
  batch_id TEXT NOT NULL, line INTEGER NOT NULL, custom_id TEXT NOT NULL, body BLOB NOT NULL,
  state TEXT NOT NULL, result BLOB, PRIMARY KEY (batch_id, line)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_state ON requests (batch_id, state);
"""
_BATCH_COLUMNS = ", ".join(Batch.__struct_fields__)


def is_disk_full(error: BaseException) -> bool:
    """Whether `error` says that the disk, or the person's share of it, has no room left."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # While it opens a database, SQLite calls a full disk an I/O error or "cannot open".
    no_room = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
    return isinstance(error, sqlite3.Error) and error.sqlite_errorcode in no_room


class BatchStore:
    """The folder's database. `open` before use, `close` at the end; calls go to its thread."""

    def __init__(self, folder: Path) -> None:
        """Nothing is opened yet."""
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch-store")
        self._connection: sqlite3.Connection | None = None

    async def run[**P, T](self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`call(*args)` in the store's thread; the only way in from the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def close(self) -> None:
        """Close the database after what is queued."""
        await self.run(self._close)
        self._thread.shutdown(wait=False)

    @property
    def is_used(self) -> bool:
        """Whether the folder exists: until then there is nothing to open or resume."""
        return self._folder.exists()

    def path_of(self, file_id: str) -> Path:
        """Where a file's content lies; ids are ours, so this cannot leave the folder."""
        return self._folder / "files" / file_id

    def fresh_upload(self) -> Path:
        """A path for an upload that is not a file yet."""
        self._database()
        return self._folder / "files" / f".upload-{secrets.token_hex(12)}"

    def add_file(self, upload: Path, filename: str, purpose: str) -> StoredFile:
        """Make a finished upload a file."""
        return self._keep_file(_new_id("file-"), upload, filename, purpose)

    def file(self, file_id: str) -> StoredFile | None:
        """One file."""
        rows = self._database().execute("SELECT * FROM files WHERE id = ?", (file_id,))
        return next((StoredFile(**dict(row)) for row in rows), None)

    def files(self, purpose: str | None = None) -> list[StoredFile]:
        """All files, the newest first."""
        where, values = ("WHERE purpose = ?", (purpose,)) if purpose else ("", ())
        query = f"SELECT * FROM files {where} ORDER BY created_at DESC, rowid DESC"  # noqa: S608
        return [StoredFile(**dict(row)) for row in self._database().execute(query, values)]

    def delete_file(self, file_id: str) -> bool:
        """Whether there was such a file."""
        with self._database() as connection:
            gone = connection.execute("DELETE FROM files WHERE id = ?", (file_id,)).rowcount
        if gone:
            self.path_of(file_id).unlink(missing_ok=True)
        return bool(gone)

    def create_batch(
        self, file_id: str, endpoint: str, window: str, window_s: int, metadata: Any
    ) -> Batch:
        """A new batch in `validating`."""
        now = int(time.time())
        batch = Batch(
            id=_new_id("batch_"),
            endpoint=endpoint,
            input_file_id=file_id,
            completion_window=window,
            status="validating",
            created_at=now,
            expires_at=now + window_s,
            metadata=json.dumps(metadata),
        )
        marks = ", ".join("?" for _ in Batch.__struct_fields__)
        statement = f"INSERT INTO batches ({_BATCH_COLUMNS}) VALUES ({marks})"  # noqa: S608
        with self._database() as connection:
            connection.execute(statement, msgspec.structs.astuple(batch))
        return batch

    def batch(self, batch_id: str) -> Batch | None:
        """One batch."""
        return next(iter(self._batches("WHERE id = ?", (batch_id,))), None)

    def batches(self) -> list[Batch]:
        """All batches, the newest first."""
        return self._batches("ORDER BY created_at DESC, rowid DESC", ())

    def active(self) -> list[Batch]:
        """Batches with something left to do, the oldest first."""
        marks = ", ".join("?" for _ in ACTIVE)
        return self._batches(f"WHERE status IN ({marks}) ORDER BY created_at, rowid", ACTIVE)

    def to_json(self, batch: Batch) -> dict[str, Any]:
        """OpenAI's batch object with its counts of this moment."""
        rows = self._database().execute(
            "SELECT state, COUNT(*) FROM requests WHERE batch_id = ? GROUP BY state", (batch.id,)
        )
        counts = {row[0]: row[1] for row in rows}
        return batch.to_json(counts.get("completed", 0), counts.get("failed", 0))

    def take_in(self, batch: Batch) -> None:
        """Validate the input file; then the batch is `in_progress`, or `failed` with its errors."""
        connection = self._database()

        def keep(row: Row) -> None:
            values = (batch.id, row.line, row.custom_id, row.body)
            connection.execute(
                "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, 'pending', NULL)", values
            )

        try:
            count, problems = validate(self.path_of(batch.input_file_id), batch.endpoint, keep)
            if not problems:
                self._update(connection, batch.id, "in_progress", {"total": count})
                connection.commit()
                return
        except FileNotFoundError:
            problems = [{"code": "file_not_found", "message": "the input file is gone"}]
            problems[0] |= {"param": "input_file_id", "line": None}
        finally:
            connection.rollback()
        errors = json.dumps({"object": "list", "data": problems})
        self._set_status(batch.id, "failed", {"errors": errors})

    def pending(self, batch: Batch, skip: set[int], limit: int) -> list[Job]:
        """Requests of `batch` that wait and are not among the lines to `skip`."""
        rows = self._database().execute(
            "SELECT line, custom_id, body FROM requests WHERE batch_id = ? AND state = 'pending'"
            " ORDER BY line LIMIT ?",
            (batch.id, limit + len(skip)),
        )
        jobs = [
            Job(
                batch_id=batch.id,
                line=row["line"],
                custom_id=row["custom_id"],
                endpoint=batch.endpoint,
                body=row["body"],
                expires_at=batch.expires_at,
            )
            for row in rows
            if row["line"] not in skip
        ]
        return jobs[:limit]

    def pending_count(self, batch_id: str) -> int:
        """How many requests have no result."""
        query = "SELECT COUNT(*) FROM requests WHERE batch_id = ? AND state = 'pending'"
        count: int = self._database().execute(query, (batch_id,)).fetchone()[0]
        return count

    def record(self, job: Job, outcome: Outcome) -> bool:
        """Keep a result; False if the request had one already, which stays."""
        line = outcome.to_line(job.batch_id, job.line, job.custom_id)
        with self._database() as connection:
            changed = connection.execute(
                "UPDATE requests SET state = ?, result = ?"
                " WHERE batch_id = ? AND line = ? AND state = 'pending'",
                ("completed" if outcome.is_success else "failed", line, job.batch_id, job.line),
            ).rowcount
        return changed == 1

    def give_up_pending(self, batch_id: str, code: str, message: str) -> None:
        """Record for every request without a result that it will not get one."""
        batch = self.batch(batch_id)
        while batch is not None and (jobs := self.pending(batch, set(), 500)):
            for job in jobs:
                self.record(job, Outcome(status=None, code=code, message=message))

    def cancel(self, batch_id: str) -> Batch | None:
        """Ask for a batch's end; None if it has ended already or never was."""
        batch = self.batch(batch_id)
        if batch is None or batch.status not in ("validating", "in_progress"):
            return None
        self._set_status(batch_id, "cancelling", {})
        return self.batch(batch_id)

    def finish(self, batch_id: str, status: Status) -> None:
        """Write output and error file, then set the final status.

        The files' ids follow from the batch's, so that a finish cut off by a crash is done again
        and leaves the same two files.
        """
        self._set_status(batch_id, "finalizing", {}, only_time=status != "completed")
        made: dict[str, Any] = {}
        for state, key in (("completed", "output"), ("failed", "error")):
            file_id = f"file-{batch_id.removeprefix('batch_')}-{key}"
            upload = self.fresh_upload()
            if self._write_results(batch_id, state, upload):
                name = f"{batch_id}_{key}.jsonl"
                self._keep_file(file_id, upload, name, "batch_output")
                made[f"{key}_file_id"] = file_id
            else:
                upload.unlink(missing_ok=True)
        self._set_status(batch_id, status, made)

    def _write_results(self, batch_id: str, state: str, path: Path) -> int:
        query = "SELECT result FROM requests WHERE batch_id = ? AND state = ? ORDER BY line"
        count = 0
        with path.open("wb") as file:
            for row in self._database().execute(query, (batch_id, state)):
                file.write(row[0])
                count += 1
            file.flush()
            os.fsync(file.fileno())
        return count

    def _keep_file(self, file_id: str, upload: Path, filename: str, purpose: str) -> StoredFile:
        stored = StoredFile(
            id=file_id,
            filename=filename,
            purpose=purpose,
            bytes=upload.stat().st_size,
            created_at=int(time.time()),
        )
        upload.replace(self.path_of(file_id))
        with self._database() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)",
                msgspec.structs.astuple(stored),
            )
        return stored

    def _batches(self, tail: str, values: tuple[str, ...]) -> list[Batch]:
        query = f"SELECT {_BATCH_COLUMNS} FROM batches {tail}"  # noqa: S608 - our own words
        return [Batch(**dict(row)) for row in self._database().execute(query, values)]

    def _set_status(
        self, batch_id: str, status: Status, fields: dict[str, Any], *, only_time: bool = False
    ) -> None:
        with self._database() as connection:
            self._update(connection, batch_id, status, fields, only_time=only_time)

    def _update(
        self,
        connection: sqlite3.Connection,
        batch_id: str,
        status: Status,
        fields: dict[str, Any],
        *,
        only_time: bool = False,
    ) -> None:
        values = {**fields, f"{status}_at": int(time.time())}
        if not only_time:
            values["status"] = status
        setting = ", ".join(f"{name} = ?" for name in values)
        statement = f"UPDATE batches SET {setting} WHERE id = ?"  # noqa: S608 - our own words
        connection.execute(statement, (*values.values(), batch_id))

    def _database(self) -> sqlite3.Connection:
        """The connection, opened (and the folder made) with the first use."""
        if self._connection is None:
            (self._folder / "files").mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            connection = sqlite3.connect(self._folder / "batches.sqlite3", check_same_thread=False)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(_SCHEMA)
            for left_over in (self._folder / "files").glob(".upload-*"):
                left_over.unlink(missing_ok=True)
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)
